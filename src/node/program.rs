//! Programs of this machine: finding them, and checking a call of `system.run` up to the point where
//! the allow-list decides.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::settings::NodeSettings;
use crate::kernel::node::{FailureReason, OUTPUT_LIMIT, Programs, RunCall};
use crate::kernel::policy::env::Environment;
use crate::kernel::policy::overlay::{MOST_BYTES, MOST_NAMES, is_blocked, is_name};
use crate::process::find;

/// Maximum number of programs in a call of `system.which`.
const WHICH_LIMIT: usize = 512;
/// Maximum number of arguments, and of bytes in all of them.
const ARGUMENTS_LIMIT: usize = 4096;
const ARGUMENT_BYTES: usize = 512 * 1024;
/// Maximum time limit of a program.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);
/// The search path if the node has none.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Why a call was not carried out.
pub(super) type CallFailure = (FailureReason, String);

/// A call of `system.run` that is complete but for the decision of the allow-list.
pub(super) struct ReadyProgram {
    /// The program as called, and its arguments.
    pub argv: Vec<String>,
    /// The file of the program.
    pub program: PathBuf,
    /// The working folder, without links.
    pub folder: PathBuf,
    /// The variables of the call.
    pub given: BTreeMap<String, String>,
    /// The whole environment.
    pub environment: Environment,
    /// The time limit.
    pub time: Duration,
    /// The maximum number of bytes kept of each output stream.
    pub keep: usize,
}

impl ReadyProgram {
    /// Checks a call and finds its program. Looks at files.
    pub(super) fn new(call: RunCall, settings: &NodeSettings) -> Result<Self, CallFailure> {
        let invalid = |message: String| Err((FailureReason::Invalid, message));
        let Some(name) = call.argv.first().filter(|name| !name.is_empty()) else {
            return invalid("argv: the program is missing".to_owned());
        };
        let bytes: usize = call.argv.iter().map(String::len).sum();
        if call.argv.len() > ARGUMENTS_LIMIT || bytes > ARGUMENT_BYTES {
            return invalid(format!(
                "argv: more than {ARGUMENTS_LIMIT} arguments or {ARGUMENT_BYTES} bytes"
            ));
        }
        if call.argv.iter().any(|word| word.contains('\0')) {
            return invalid("argv: an argument contains U+0000".to_owned());
        }
        check_variables(&call.env).map_err(|why| (FailureReason::Invalid, why))?;
        let environment = call
            .env
            .iter()
            .fold(base_environment(), |environment, (name, value)| {
                environment.with(name, value)
            });
        let folder = match &call.cwd {
            Some(folder) => PathBuf::from(folder),
            None => settings.working_folder(),
        };
        if !folder.is_absolute() {
            return invalid(format!("cwd: {} is not an absolute path", folder.display()));
        }
        let missing = |why: String| (FailureReason::NotFound, why);
        let folder = folder
            .canonicalize()
            .map_err(|fault| missing(format!("cwd: {}: {fault}", folder.display())))?;
        if !folder.is_dir() {
            return Err(missing(format!(
                "cwd: {} is not a folder",
                folder.display()
            )));
        }
        let program = find(name, environment.get("PATH"), &folder).map_err(missing)?;
        Ok(ReadyProgram {
            program,
            folder,
            environment,
            given: call.env,
            time: Duration::from_millis(call.timeout_ms).min(LONGEST),
            keep: call.keep.min(OUTPUT_LIMIT),
            argv: call.argv,
        })
    }
}

/// Refuses variables that a call cannot set; the error names the variable, never its value.
fn check_variables(given: &BTreeMap<String, String>) -> Result<(), String> {
    if given.len() > MOST_NAMES {
        return Err(format!("env: more than {MOST_NAMES} variables"));
    }
    for (name, value) in given {
        if !is_name(name) {
            return Err(format!("env: {name:.80?} cannot be the name of a variable"));
        }
        if is_blocked(name) {
            return Err(format!(
                "env: {name} can control what programs load, start, trust or connect to, so a call \
                 cannot set it"
            ));
        }
        if value.len() > MOST_BYTES || value.contains('\0') {
            return Err(format!(
                "env: the value of {name} has more than {MOST_BYTES} bytes or contains U+0000"
            ));
        }
    }
    Ok(())
}

/// The variables of every program: those of the node that describe the machine and its user.
/// Folders of `PATH` that depend on the working folder are left out.
pub(super) fn base_environment() -> Environment {
    let environment = Environment::base(std::env::vars_os(), &[]);
    let path = environment.get("PATH").map(|path| {
        let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
        std::env::join_paths(folders).unwrap_or_default()
    });
    let path = path.filter(|path| !path.is_empty());
    environment.with("PATH", path.unwrap_or_else(|| OsString::from(USUAL_PATH)))
}

/// Finds programs by name in the `PATH` of the node.
pub(super) fn which(names: &BTreeSet<String>) -> Result<Programs, CallFailure> {
    if names.len() > WHICH_LIMIT {
        let message = format!("programs: more than {WHICH_LIMIT} names");
        return Err((FailureReason::Invalid, message));
    }
    let environment = base_environment();
    let is_plain = |name: &&String| !name.is_empty() && !name.contains(['/', '\0']);
    let found = names.iter().filter(is_plain).filter_map(|name| {
        let file = find(name, environment.get("PATH"), Path::new("/")).ok()?;
        Some((name.clone(), file.to_str()?.to_owned()))
    });
    Ok(Programs {
        programs: found.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(argv: &[&str]) -> RunCall {
        RunCall {
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            cwd: Some("/".to_owned()),
            env: BTreeMap::new(),
            timeout_ms: 1000,
            keep: usize::MAX,
        }
    }

    fn refused(call: RunCall) -> (FailureReason, String) {
        match ReadyProgram::new(call, &NodeSettings::default()) {
            Ok(ready) => panic!("{:?} was accepted", ready.argv),
            Err(failure) => failure,
        }
    }

    #[test]
    fn a_call_is_complete_or_refused_with_the_reason() {
        let ready = ReadyProgram::new(call(&["sh", "-c", "x"]), &NodeSettings::default());
        let ready = ready.ok().unwrap();
        assert!(ready.program.is_absolute() && ready.program.ends_with("sh"));
        assert_eq!(ready.keep, OUTPUT_LIMIT);
        let env = |name: &str, value: &str| RunCall {
            env: BTreeMap::from([(name.to_owned(), value.to_owned())]),
            ..call(&["sh"])
        };
        let cwd = |folder: &str| RunCall {
            cwd: Some(folder.to_owned()),
            ..call(&["sh"])
        };
        for (call, reason, says) in [
            (call(&[]), FailureReason::Invalid, "argv"),
            (call(&[""]), FailureReason::Invalid, "argv"),
            (call(&["sh", "a\0"]), FailureReason::Invalid, "U+0000"),
            (call(&["no-such-program"]), FailureReason::NotFound, "PATH"),
            (env("LD_PRELOAD", "x"), FailureReason::Invalid, "LD_PRELOAD"),
            (env("PATH", "x"), FailureReason::Invalid, "PATH"),
            (env("a=b", "x"), FailureReason::Invalid, "name"),
            (env("A", "x\0"), FailureReason::Invalid, "U+0000"),
            (cwd("relative"), FailureReason::Invalid, "absolute"),
            (cwd("/no/such/folder"), FailureReason::NotFound, "cwd"),
        ] {
            let (found, message) = refused(call);
            assert_eq!(found, reason, "{message}");
            assert!(message.contains(says), "{message}");
        }
    }

    #[test]
    fn programs_are_found_by_plain_names() {
        let names = ["sh", "no-such-program", "/bin/sh", "", "../sh"];
        let found = which(&names.iter().map(|name| (*name).to_owned()).collect()).unwrap();
        assert_eq!(found.programs.keys().collect::<Vec<_>>(), ["sh"]);
        let many = (0..=WHICH_LIMIT).map(|number| number.to_string()).collect();
        assert!(which(&many).is_err());
    }
}
