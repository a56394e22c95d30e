"""Runs drivers' programs and test suites twice, direct and through Tidegate, and compares test by test."""
