//! What people read and run: the pages, `make install`, the demonstration, the record.

mod demonstration;
mod exporter;
mod install;
mod pages;
mod record;
