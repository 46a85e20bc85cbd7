//! Names the shared library as programs are to look for it: a change of the interface that
//! breaks them changes the number.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libatp.so.0");
    }
}
