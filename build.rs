//! What is done before the crate is compiled: an option of the linker is passed on.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Once loaded, the code stays mapped: after a load that was refused, the server may still have a callback to call,
    // and a thread a destructor.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
