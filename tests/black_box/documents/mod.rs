//! What people read and run: the pages, `make install`, the demonstration.

mod demonstration;
mod exporter;
mod install;
mod pages;
mod transcripts;
