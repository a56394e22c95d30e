//! Programs that healing runs, from one directory of this machine.
//!
//! INVARIANT: a program outside of the directory is not started, whatever links lead there; nor one that others than its owner and group
//! may change.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use model::fleet::{Program, ProgramEnd, Programs as Runs, Running};
use tokio::sync::watch;

use super::capture::Keep;
use super::script::{Ended, Script, run};

/// How much of each output is kept, bytes.
const OUTPUT_MAX: usize = 4_096;
/// Anybody may write.
const BY_OTHERS: u32 = 0o002;

/// See the module.
#[derive(Debug, Default)]
pub struct Programs;

impl Runs for Programs {
    fn run(&self, program: Program, stop: Running<()>) -> Running<ProgramEnd> {
        Box::pin(async move {
            let path = match find(&program) {
                Ok(path) => path,
                Err(why) => return ProgramEnd { fault: Some(why), output: String::new() },
            };
            let script = Script {
                program: path,
                args: program.command.iter().skip(1).cloned().collect(),
                environment: program.environment,
                limit: Some(program.limit),
                max_output: OUTPUT_MAX,
                keep: Keep::Tail,
            };
            let (stopping, mut stopped) = watch::channel(false);
            let stop = async {
                stop.await;
                stopping.send_replace(true);
                std::future::pending::<()>().await;
            };
            let ran = tokio::select! {
                ran = run(&script, &mut stopped) => ran,
                () = stop => unreachable!("it is pending"),
            };
            let fault = match ran.ended {
                Ended::Exited(0) => None,
                Ended::Exited(code) => Some(format!("it ended with code {code}")),
                Ended::TimedOut => Some(format!("it took longer than {} ms (timeout_ms) and was ended", program.limit.as_millis())),
                Ended::Stopped => Some("it was not wanted any more and was ended".to_owned()),
                Ended::NotStarted { why, .. } => Some(why),
            };
            let (out, err) = (ran.stdout.text(), ran.stderr.text());
            ProgramEnd {
                fault,
                output: [out.trim_end(), err.trim_end()].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n"),
            }
        })
    }

    fn check(&self, program: &Program) -> Result<(), String> {
        find(program).map(drop)
    }
}

/// The program's path, without links.
fn find(program: &Program) -> Result<String, String> {
    let name = program.command.first().map(String::as_str).unwrap_or_default();
    if program.directory.is_empty() {
        return Err("admin-healing_hooks_dir is not set on this machine, so no program runs".to_owned());
    }
    let real = |path: &Path| path.canonicalize().map_err(|e| format!("{}: {e}", path.display()));
    let directory = real(Path::new(&program.directory))?;
    let path = real(&directory.join(name))?;
    if path.parent() != Some(&*directory) {
        return Err(format!(
            "{name} is not in admin-healing_hooks_dir ({}): links that lead out of it are not followed",
            directory.display()
        ));
    }
    for path in [&directory, &path] {
        let found = std::fs::metadata(path).map_err(|e| format!("{}: {e}", path.display()))?;
        if found.permissions().mode() & BY_OTHERS != 0 {
            return Err(format!("{} can be changed by anybody (chmod o-w)", path.display()));
        }
    }
    PathBuf::into_os_string(path).into_string().map_err(|_| format!("{name}: its path is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn made(text: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), text);
        directory
    }

    fn write(directory: &Path, text: &str) {
        let path = directory.join("hook");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    fn program(directory: &Path, command: &[&str]) -> Program {
        Program {
            directory: directory.display().to_string(),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            environment: vec![("TIDEGATE_MOMENT", "after".to_owned())],
            limit: Duration::from_secs(20),
        }
    }

    fn ran(program: Program, stop: Running<()>) -> ProgramEnd {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Programs.run(program, stop))
    }

    fn forever() -> Running<()> {
        Box::pin(std::future::pending())
    }

    #[test]
    fn no_shell_reads_arguments_and_facts_are_in_the_environment() {
        let directory = made("echo \"$1|$2|$TIDEGATE_MOMENT\"; echo oops >&2; exit 3");
        let end = ran(program(directory.path(), &["hook", "$HOME", ";id"]), forever());
        assert_eq!(end, ProgramEnd { fault: Some("it ended with code 3".to_owned()), output: "$HOME|;id|after\noops".to_owned() });
        write(directory.path(), "exit 0");
        assert_eq!(ran(program(directory.path(), &["hook"]), forever()).fault, None);
    }

    #[test]
    fn only_programs_of_the_directory_run() {
        let directory = made("exit 0");
        let fault = |name: &str| ran(program(directory.path(), &[name]), forever()).fault.unwrap_or_default();
        std::os::unix::fs::symlink("/bin/true", directory.path().join("link")).unwrap();
        assert!(fault("link").contains("is not in admin-healing_hooks_dir"), "{}", fault("link"));
        for name in ["../hook", "/bin/true", "missing", "", "."] {
            assert!(!fault(name).is_empty(), "{name}");
        }
        std::fs::set_permissions(directory.path().join("hook"), PermissionsExt::from_mode(0o777)).unwrap();
        assert!(fault("hook").contains("can be changed by anybody"));
        let unset = Program { directory: String::new(), ..program(directory.path(), &["hook"]) };
        assert!(ran(unset, forever()).fault.unwrap().contains("is not set on this machine"));
    }

    #[test]
    fn a_program_that_takes_too_long_or_is_not_wanted_is_ended() {
        let directory = made("sleep 1000");
        let slow = Program { limit: Duration::from_millis(200), ..program(directory.path(), &["hook"]) };
        assert!(ran(slow, forever()).fault.unwrap().contains("longer than 200 ms"));
        let begun = Instant::now();
        let stop: Running<()> = Box::pin(async { tokio::time::sleep(Duration::from_millis(100)).await });
        assert!(ran(program(directory.path(), &["hook"]), stop).fault.unwrap().contains("not wanted any more"));
        assert!(begun.elapsed() < Duration::from_secs(15));
    }
}
