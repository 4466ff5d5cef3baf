//! Tells the driver by which compiler it was built.
use std::process::Command;

fn main() {
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let said = Command::new(compiler).arg("--version").output().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let version = said.ok().and_then(|text| text.split(' ').nth(1).map(str::to_owned)).unwrap_or_else(|| "?".into());
    println!("cargo:rustc-env=DRIVER_RUSTC={version}");
}
