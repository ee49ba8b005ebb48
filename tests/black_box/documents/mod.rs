//! What people read and run: the pages, `make install`, the demonstration, the evidence.

mod demonstration;
mod evidence;
mod exporter;
mod install;
mod pages;
