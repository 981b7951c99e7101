//! Gives the shared library its name: programs are bound to the interface's version, not to the file they were linked
//! against.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcci.so.2");
}
