//! What people read and run: the pages, `make install`, the demonstration, `make test-matrix`.

mod demonstration;
mod exporter;
mod figures;
mod install;
mod matrix;
mod pages;
