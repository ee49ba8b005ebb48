//! What people read and run: the pages, `make install`, the demonstration, `make test-matrix`.

mod demonstration;
mod install;
mod matrix;
mod pages;
