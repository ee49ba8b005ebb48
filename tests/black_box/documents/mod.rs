//! What people read and run: the pages, `make install`, the demonstration, `make test-matrix`, the public home.

mod demonstration;
mod exporter;
mod figures;
mod home;
mod install;
mod matrix;
mod pages;
