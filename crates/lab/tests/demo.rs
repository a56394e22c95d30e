//! `lab demo --check`: the demonstration from start to end.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

use std::process::Command;

use lab::tidegate::find_program;

#[test]
fn the_demonstration_works() {
    demonstrate(&["demo", "--check", "--replicas", "1"]);
}

#[test]
fn the_demonstration_of_a_fleet_works() {
    demonstrate(&["demo", "--check", "--replicas", "1", "--fleet"]);
}

fn demonstrate(arguments: &[&str]) {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_lab"));
    demo.args(arguments).env("TIDEGATE_BIN", find_program().unwrap());
    let output = demo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
