//! What people read and run: the pages, `make install`, the demonstration, the pages of the Debian package, the record.

mod demonstration;
mod exporter;
mod install;
mod package;
mod pages;
mod record;
