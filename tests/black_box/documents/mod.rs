//! What people read and run: the pages, `make install`, the demonstration, `make test` and `make test-matrix`, the
//! public home, the pages of the Debian package, the record.

mod demonstration;
mod exporter;
mod figures;
mod home;
mod install;
mod matrix;
mod package;
mod pages;
mod record;
mod side_by_side;
