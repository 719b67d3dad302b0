//! Finds the C library: in the folder DLOCK_LIB_DIR, or else with pkg-config, or else where the linker looks.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=DLOCK_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let archive = env::var_os("CARGO_FEATURE_STATIC").is_some();
    if let Ok(folder) = env::var("DLOCK_LIB_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
        println!("cargo:rustc-link-lib={}dlock", if archive { "static=" } else { "" });
        return;
    }
    let mut command = Command::new("pkg-config");
    command.args(["--libs", "dlock"]);
    if archive {
        command.arg("--static");
    }
    let flags = match command.output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        _ if archive => panic!("pkg-config does not know dlock, whose static library was asked for"),
        _ => "-ldlock".to_owned(),
    };
    for flag in flags.split_whitespace() {
        if let Some(folder) = flag.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
        } else if let Some(library) = flag.strip_prefix("-l") {
            println!("cargo:rustc-link-lib={}{library}", if archive && library == "dlock" { "static=" } else { "" });
        }
    }
}
