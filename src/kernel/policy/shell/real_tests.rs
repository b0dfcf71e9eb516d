//! Compares what real shells run with what was parsed from the line. Every line is run by each
//! shell on this machine, in a folder of its own, with a program `mark` that logs its calls. A line
//! in which `mark` ran must never be covered by rules that allow other programs, nor pass a rule
//! that denies `mark`; a line that created a file must never be covered by rules without `>`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::tests::judge;
use crate::kernel::policy::gate::Decision;

/// The shells that run each line, if installed.
const SHELLS: &[&str] = &[
    "/bin/sh",
    "/bin/dash",
    "/bin/bash",
    "/usr/bin/ksh",
    "/usr/bin/mksh",
    "/usr/bin/yash",
    "/usr/bin/busybox",
];

/// Allowed programs, which run others only through their own features.
const ALLOWED: &[(&str, Decision)] = &[
    ("echo*", Decision::Allow),
    ("cat*", Decision::Allow),
    ("true*", Decision::Allow),
    ("false*", Decision::Allow),
    ("set*", Decision::Allow),
    ("find*", Decision::Allow),
    ("sed*", Decision::Allow),
    ("awk*", Decision::Allow),
    ("printf*", Decision::Allow),
    ("read*", Decision::Allow),
    ("test*", Decision::Allow),
    ("[*", Decision::Allow),
    ("unset*", Decision::Allow),
    ("export*", Decision::Allow),
    ("declare*", Decision::Allow),
    ("sort*", Decision::Allow),
    ("xargs*", Decision::Allow),
    ("env*", Decision::Allow),
    ("trap*", Decision::Allow),
    ("eval*", Decision::Allow),
];
const DENIED: &[(&str, Decision)] = &[("*", Decision::Allow), ("mark*", Decision::Deny)];

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("bin")).unwrap();
        fs::create_dir(dir.path().join("work")).unwrap();
        let program = dir.path().join("bin/mark");
        fs::write(&program, "#!/bin/sh\necho \"$*\" >> \"$MARK_LOG\"\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Place { dir }
    }

    /// Runs the line; returns whether `mark` was called, and whether a file was created.
    fn run(&self, shell: &str, line: &str) -> (bool, bool) {
        let (log, work) = (self.dir.path().join("log"), self.dir.path().join("work"));
        let path = format!("{}:/usr/bin:/bin", self.dir.path().join("bin").display());
        let mut command = Command::new("/usr/bin/timeout");
        command.args(["-s", "KILL", "10", shell]);
        if shell.ends_with("busybox") {
            command.arg("sh");
        }
        let done = command
            .args(["-c", line])
            .env_clear()
            .env("PATH", path)
            .env("MARK_LOG", &log)
            .current_dir(&work)
            .stdin(Stdio::null())
            .output();
        let is_run = done.is_ok() && fs::remove_file(&log).is_ok();
        (is_run, clear(&work))
    }
}

/// Empties a folder; returns whether it had any content.
fn clear(folder: &Path) -> bool {
    let mut any = false;
    for entry in fs::read_dir(folder).unwrap().flatten() {
        any = true;
        let path = entry.path();
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    }
    any
}

fn shells() -> impl Iterator<Item = &'static str> {
    SHELLS
        .iter()
        .copied()
        .filter(|shell| Path::new(shell).exists())
}

/// The effects of the line that the parser missed.
fn missed(place: &Place, shell: &str, line: &str) -> Vec<String> {
    let allowed = judge(ALLOWED, line) == Decision::Allow;
    let passed = judge(DENIED, line) == Decision::Allow;
    if !allowed && !passed {
        return Vec::new();
    }
    let (is_run, is_file) = place.run(shell, line);
    let found = [
        (allowed && is_run, "ran mark, and it was allowed"),
        (passed && is_run, "ran mark, unasked"),
        (allowed && is_file, "made a file, and it was allowed"),
    ];
    let found = found.into_iter().filter(|(is, _)| *is);
    found
        .map(|(_, what)| format!("{shell} {what}: {line:?}"))
        .collect()
}

/// Lines that some shells parse in their own way.
#[rustfmt::skip]
const LINES: &[&str] = &[
    "echo a &>/dev/null mark p",
    "echo a &>>/dev/null mark p",
    "echo a &\\\n>/dev/null mark p",
    "echo &\\\n>/dev/null; mark p",
    "12>/dev/null mark p",
    "echo $'\\'; mark p; #'",
    "echo $'a\\\\\\'; mark p; #'",
    "echo $\"$(mark p)\"",
    "echo $\"`mark p`\"",
    "echo \"`echo \\\"'\\\"; mark p; echo \\\"'\\\"`\"",
    "cat <<E\n`echo \\\"'\\\"; mark p; echo \\\"'\\\"`\nE",
    "echo `echo 'a\\\nb'; mark p`",
    "find . -maxdepth 0 -exec sh -c 'for f do mark p; done' sh {} +",
    "find . -maxdepth 0 -exec env -u + mark p ;",
    "find . -maxdepth 0 -exec env -u + mark p \\;",
    "set -- 1; for x do mark p; done",
    "set -- 1; for x\ndo mark p; done",
    "set -- 1; for x\n\ndo mark p\ndone",
    "set -- 1; for x; do mark p; done",
    "for x in a\ndo mark p; done",
    "for x\nin a b\ndo mark p; done",
    "for x in do mark; do mark p; done",
    "for x in a # in b\ndo mark p; done",
    "for x in $(mark p); do echo; done",
    "echo 'mark p' | sed 's/[/]/q5;x/e;#/'",
    "echo 'mark /' | sed 's/[/]/q5;x/e;#/'",
    "echo x | sed 's/x/mark p/e'",
    "echo x | sed -e 's/x/mark p/' -e e",
    "echo mark p | sed '/[/]/;x/d;e;#/'",
    "echo mark p | sed -n '\\,[,],p;e;#,d'",
    "x='1e mark p'; echo a | sed -n $x",
    "x=-e1emark; echo a | sed -n p $x",
    "echo | awk -v \"a=1\" 'BEGIN { system(\"mark p\") }'",
    "x='a=1 BEGIN{system(\"mark\")}'; IFS_=1; awk -v $x",
    "cat - <<E\nE\\\nOF\nmark p\nE",
    "cat - <<EOF\nE\\\nOF\nmark p\nEOF",
    "cat - <<EOF\n\\\nEOF\nmark p\nEOF",
    "cat - <<EOF\na\\\nEOF\ncat - <<'X'\nEOF\nmark p\nX\n",
    "cat - <<-EOF\n\tE\\\n\tOF\nmark p\nEOF",
    "cat - <<E\\\nOF\nEOF\nmark p\nEOF",
    "cat - <<E'O'F\nEOF\nmark p\nEOF",
    "cat - <<\\E\n$(mark q)\nE\nmark p",
    "cat - <<$x\n$x\nmark p\n",
    "cat - <<E; (\nx\n)\nE\nmark p\n",
    "cat - <<E; echo $(\necho b\nE\n)\nmark p\nE\n",
    "cat - <<E \"a\nb\"\nE\nmark p\nE",
    "echo $(cat <<E\nx\nE)\nmark p\nE\n)",
    "echo `cat <<E\nx\nE`\nmark p",
    "cat <<E | cat <<F\na\nE\nb\nF\nmark p",
    "echo ${x:-<(mark p)}",
    "echo ${x:->(mark p)}",
    "echo ${x:-{}; mark p; echo }",
    "echo \"${x:-{}\"; mark p; echo \"}\"",
    "echo ${x:-'}'; mark p; echo '}",
    "echo ${x:-$(mark p)}",
    "echo ${x:-`mark p`}",
    "echo ${x#`mark p`}",
    "x='a[$(mark p)]'; echo $((x))",
    "x='a[$(mark p)]'; echo $(( 1 + x ))",
    "x='a[$(mark p)]'; echo $(( $x ))",
    "x='a[$(mark p)]'; echo $[x]",
    "x='a[$(mark p)]'; echo ${a[x]}",
    "x='a[$(mark p)]'; echo ${y:x}",
    "x='a[$(mark p)]'; y=abc; echo ${y:x:1}",
    "x='a[$(mark p)]'; a[x]=1",
    "x='a[$(mark p)]'; echo ${!x}",
    "x='a[$(mark p)]'; (( x ))",
    "x='a[$(mark p)]'; let x",
    "x='a[$(mark p)]'; [[ x -eq 1 ]]",
    "x='a[$(mark p)]'; [ x -eq 1 ]",
    "x='a[$(mark p)]'; declare -i y=x",
    "x='a[$(mark p)]'; declare -n y=x; echo $y",
    "declare -n y='a[$(mark p)]'; echo $y",
    "declare -i y; y='a[$(mark p)]'",
    "x='$(mark p)'; echo \"${x@P}\"",
    "x='`mark p`'; echo ${x@P}",
    "RANDOM='a[$(mark p)]'",
    "SECONDS='a[$(mark p)]'",
    "HISTCMD='a[$(mark p)]'",
    "OPTIND='a[$(mark p)]'",
    "LINENO='a[$(mark p)]'",
    "SRANDOM='a[$(mark p)]'",
    "BASHPID='a[$(mark p)]'",
    "EPOCHSECONDS='a[$(mark p)]'",
    "read RANDOM <<E\na[$(echo '$(mark p)')]\nE",
    "for RANDOM in 'a[$(mark p)]'; do echo; done",
    "export RANDOM='a[$(mark p)]'",
    "echo 'a[$(mark p)]' | (read RANDOM)",
    "printf -v RANDOM %s 'a[$(mark p)]'",
    "printf -v 'a[$(mark p)]' x",
    "printf -v'a[$(mark${IFS}p)]' x",
    "unset 'a[$(mark p)]'",
    "a=1; unset 'a[$(mark${IFS}p)]'",
    "test -v 'a[$(mark p)]'",
    "[ -v 'a[$(mark p)]' ]",
    "[ 'a[$(mark p)]' -eq 1 ]",
    "read 'a[$(mark p)]' <<E\nx\nE",
    "read -r -a 'a[$(mark p)]' <<E\nx\nE",
    "declare 'a[$(mark p)]=1'",
    "export 'a[$(mark p)]=1'",
    "readonly 'a[$(mark p)]=1'",
    "getopts a 'a[$(mark p)]' -a",
    "mapfile -C 'mark p;' -c 1 <<E\nx\nE",
    "mapfile 'a[$(mark p)]' <<E\nx\nE",
    "jobs -x mark p",
    "compgen -C 'mark p' x",
    "compgen -W '$(mark p)'",
    "hash -p /bin/sh echo; echo -c 'mark p'",
    "enable -n echo; echo mark",
    "PS4='$(mark p)'; set -x; echo a",
    "x='PS4=$(mark p)'; export \"$x\"; set -x; echo a",
    "BASH_ENV=x sh -c 'echo'",
    "trap -- 'mark p' EXIT",
    "trap 'mark p' EXIT",
    "trap 'mark p' 0",
    "x='mark p'; trap -- \"$x\" EXIT",
    "trap 'mark${IFS}p' EXIT",
    "eval -- mark p",
    "eval 'mar''k p'",
    "eval \"mar\"k\" p\"",
    "sh -c -- 'mark p'",
    "sh -ec 'mark p'",
    "bash -co pipefail 'mark p'",
    "bash -O extglob -c 'mark p'",
    "sh <<E\nmark p\nE",
    "sh <<E\nmar\\\nk p\nE",
    "sh <<'E'\nmar\\\nk p\nE",
    "sh -s a <<E\nmark p\nE",
    "echo mark p | sh",
    "echo mark p | xargs env",
    "echo p | xargs -0I {} mark {}",
    "echo p | xargs mark",
    "echo 'mark p' | xargs -I {} sh -c {}",
    "echo 'mark p' | while read x; do $x; done",
    "echo 'mark p' | { sh; }",
    "{ sh; } <<E\nmark p\nE",
    "while read x; do eval \"$x\"; done <<E\nmark p\nE",
    "echo $\\\n(mark p)",
    "echo \"$\\\n(mark p)\"",
    "echo \"$\\\n\\\n(mark p)\"",
    "cat <<E\n$\\\n(mark p)\nE",
    "echo $\\\n{x:-`mark p`}",
    "echo $(\\\n(mark p) )",
    "echo $(( $(mark p) + 1 ))",
    "echo $((1) ; mark p)",
    "echo $((mark p) )",
    "(\\\n( mark p ) )",
    "echo a |\\\n& mark p",
    "echo a |\\\n| mark p; false |\\\n| mark p",
    "echo a <\\\n(mark p)",
    "cat <\\\n<E\nE\nmark p\nE",
    "cat <<E\\\n\nE\nmark p\nE",
    "echo a#b; mark p",
    "echo a \\\n#b; mark p\nmark q",
    "echo # \\\nmark p",
    "echo a;#b\nmark p",
    "echo {a,b}; {mark,p}",
    "mar{k,} p",
    "{fd}>/dev/null mark p",
    "! mark p",
    "if mark p; then echo; fi",
    "until mark p; do echo; done",
    "case a in a) mark p;; esac",
    "x() { mark p; }; x",
    "echo() { mark p; }; echo",
    "function echo { mark p; }; echo",
    "alias echo='mark p'\necho a",
    "time mark p",
    "coproc mark p; wait",
    "m=mark; $m p",
    "set -- mark p; \"$@\"",
    "set -- mark p; \"${@}\"",
    "set -- mark p; $1",
    "./../bin/mark p",
    "../bin/mar? p",
    "cd ../bin; ./mark p",
    "PATH=../bin; mark p",
    "env mark p",
    "env -S 'mark p'",
    "env -S'mark p' x",
    "env -C . mark p",
    "env -u x mark p",
    "command mark p",
    "exec mark p",
    "exec -a echo mark p",
    "nice mark p",
    "echo a > o",
    "echo a >| o",
    "echo a >& o",
    "echo a <> o",
    "echo >&'$(mark p)'",
    "echo >&\\$\\(mark\\ p\\)",
    "x='$(mark p)'; echo >&$x",
    "x='$(mark p)'; echo <&$x",
    "cat <&'$(mark p)'",
    "echo a 1>o",
    "> o",
    "echo >o$x",
    "printf mark | sort -o o",
    "echo | awk '{ print > \"o\" }'",
    "echo | sed 'w o'",
    "echo a | sed -n 's/a/b/w o'",
    "find . -maxdepth 0 -fprint o",
    "echo a | cat <(mark p)",
    "cat < <(mark p)",
    "echo $(<o; mark p)",
    "echo \"${x:-\"$(mark p)\"}\"",
    "echo ${x:-\"}\"}; mark p; echo \"a\"",
    "echo \"\\$(mark q)\"; echo '$(mark q)'; mark p",
    "echo '\\'; mark p; echo '",
    "echo \"\\\\\"; mark p; echo \"\"",
    "echo \\\"; mark p; echo \\\"",
    "echo \\'; mark p; echo \\'",
    "echo a\\\nb; mar\\\nk p",
    "mar\\k p",
    "'mar'k p",
    "\"ma\"rk p",
    "mark\tp",
    "sh <<E\necho \\\"; mark p; echo \\\"\nE",
    "sh <<E\necho \\\\\"; mark p; echo \\\\\"\nE",
    "echo ${x/a; mark p;}",
    "echo ${x^;mark p}",
    "echo ${x:-a b} mark; mark",
    "echo ${#x}; echo ${x%a*}; echo ${x:-b}",
    "echo $((1 + 2)) $((3*(4-1)))",
    "echo $'a\\tb' \"a b\" 'c d'",
    "cat <<E\na $x\nE",
    "cat <<'E' | sed 's/a/b/'\na\nE",
    "echo a | sed -n '/[a-z]/p' | cat",
    "echo a >/dev/null 2>&1 && echo b",
    "for x in a b; do echo $x; done",
    "for x do echo $x; done",
    "SECONDS='a[$(mark p)]'; echo",
    "OPTIND='a[$(mark p)]'; echo",
    "LINENO='a[$(mark p)]'; echo",
    "HISTCMD='a[$(mark p)]'; echo",
    "RANDOM='a[$(mark p)]'; echo",
    "MAILCHECK='a[$(mark p)]'; echo",
    "EPOCHSECONDS='a[$(mark p)]'; echo",
    "COLUMNS='a[$(mark p)]'; echo",
    "UID='a[$(mark p)]' echo",
    "HISTSIZE='a[$(mark p)]'; echo",
    "BASH_ARGV0='a[$(mark p)]'; echo",
    "IFS=k; x=mar; echo",
    "set -k; echo PATH=.",
    "set -o history; echo a",
    "PATH=../bin:; set -- mark; echo",
    "echo a; PATH=../bin command -p mark p",
    "wait -p 'a[$(mark p)]'",
    "test \"$x\" -eq 1; echo",
    "exec 3<<E; echo\nmark p\nE",
    "exec <<E; sh\nmark p\nE",
    "sed -n '$!N;P;D' <<E\nmark\nE",
    "sed 's/[[:space:]/]/x/;e;#/'",
    "echo mark p | sed 's/[]/]/x/;e;#]/x/'",
    "echo mark p | sed 's/[^]/]/x/;e;#]/x/'",
    "echo mark p | sed 's/\\[/x/;e;#]/x/'",
    "echo mark p | sed 's[a[b[;e'",
    "echo mark p | sed y/a/b/\\;e",
    "echo mark p | sed 's/x/y/;s/mark/&/e'",
    "echo mark p | sed -ne e",
    "echo mark p | sed --expression e",
    "echo mark p | sed -s -- e",
    "echo | awk '{ \"mark p\" | getline }'",
    "find . -maxdepth 0 -exec echo {} + -exec mark p ;",
    "find . -maxdepth 0 -exec echo + mark {} \\;",
    "find . -maxdepth 0 -exec mark {} +",
    "find . -maxdepth 0 -ok mark {} \\;",
    "x='-exec mark {} ;'; find . -maxdepth 0 $x",
    "echo p | xargs -n 1 -I{} sh -c 'mark {}'",
    "echo 'a;mark p' | xargs -d\\; -n1 echo",
    "printf 'mark p' | xargs -0 sh -c",
    "echo 'a; mark p; b' \"c; mark p; d\" 'e'",
    "echo \"`echo 'mark p'` a\" `echo \"mark p\"`",
    "echo ${x:-mark} 'mark p' ${x+a} \"${x-b}\"",
    "cat <<E\nmark p\nE\necho b",
    "cat <<'E' | cat - <<F\nmark p\n$(mark p)\nE\na\nmark p\nF\necho b",
    "cat <<-E; echo a\n\tmark p\n\tE\necho b",
    "echo $(cat <<E\nmark p\nE\n) a",
    "echo a # mark p\necho b",
    "echo $'mark p' $\"mark p\" a",
    "for x in mark p; do echo $x 'mark p'; done",
    "if true; then echo 'mark p'; else echo \"mark p\"; fi",
    "{ echo 'mark p'; } | cat && ( echo \"mark p\" )",
    "set -- 'mark p'; for x do echo \"$x\"; done",
];

#[test]
fn what_a_real_shell_runs_was_read_before() {
    let place = Place::new();
    let missed: Vec<String> = shells()
        .flat_map(|shell| LINES.iter().map(move |line| (shell, *line)))
        .flat_map(|(shell, line)| missed(&place, shell, line))
        .collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// The check itself works: in each installed shell, plain lines run `mark`.
#[test]
fn a_mark_is_noticed() {
    let place = Place::new();
    for shell in shells() {
        for line in ["mark p", "echo $(mark p)", "echo a; mark p | cat"] {
            assert_eq!(place.run(shell, line), (true, false), "{shell}: {line}");
        }
        assert_eq!(place.run(shell, "echo mark"), (false, false), "{shell}");
        assert_eq!(place.run(shell, "echo mark >o"), (false, true), "{shell}");
    }
}

/// Pieces of syntax.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "mark p", "mark p", "; mark p; ", "\nmark p\n", "$(mark p)", "`mark p`", "echo ", "a", "x", " ",
    " ", "\n", "\n", ";", "&", "&&", "|", "||", "&>", ">", ">/dev/null ", ">&", "2", "<", "<<E\n",
    "<<'E'\n", "<<-E\n", "\nE\n", "\nE", "E", "\t", "\\\n", "\\\n", "'", "'", "\"", "\"", "$'",
    "$\"", "\\'", "\\\"", "\\\\", "\\", "`", "\\`", "$(", ")", "(", "{", "}", "{ ", "; }", "${x:-",
    "${x", "$((", "))", "$x", "$@", "$", "x=", "for x in a; do ", "for x do ", "do ", "; done",
    "if true; then ", "; fi", "#", " #", "! ", "<(", ">(", "[", "]", "*", "eval ", "set -- 1;",
    "trap ", " EXIT", "env ", "$[", "a[", "-", "--", "%", "|&", ";;", "case x in x) ", ";; esac",
    ",", "..", "${#", "@", "?", "=", "+", "^", ":", "e", "s/a/b/", "/",
];

/// A line of the table, or two joined, with some pieces inserted and some characters removed.
fn lines() -> impl Strategy<Value = String> {
    let seeds = || prop::sample::select(LINES);
    let edit = (
        any::<prop::sample::Index>(),
        0..4_usize,
        prop::sample::select(PIECES),
    );
    (seeds(), seeds(), 0..4_u8, prop::collection::vec(edit, 0..4)).prop_map(
        |(one, other, how, edits)| {
            let joined = match how {
                0 => format!("{one}; {other}"),
                1 => format!("echo \"{one}\" {other}"),
                _ => one.to_owned(),
            };
            let mut line: Vec<char> = joined.chars().collect();
            for (at, gone, piece) in edits {
                let at = at.index(line.len() + 1);
                let end = (at + gone).min(line.len());
                let piece = if gone == 3 { "" } else { piece };
                line.splice(at..end, piece.chars());
            }
            line.into_iter().collect()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    /// For any change of the lines in the table.
    #[test]
    fn what_a_real_shell_runs_of_any_line_was_read_before(
        lines in prop::collection::vec(lines(), 8..9),
    ) {
        let place = Place::new();
        // Lines that may run for ever are skipped.
        for line in lines.iter().filter(|line| !line.contains("until") && !line.contains("while")) {
            for shell in shells().filter(|shell| *shell != "/bin/sh") {
                let missed = missed(&place, shell, line);
                prop_assert!(missed.is_empty(), "{}", missed.join("\n"));
            }
        }
    }
}
