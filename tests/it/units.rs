//! The files in `packaging`: what units and property lists say is what the program does, and systemd
//! finds no fault in them.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness::{TEST_TIMEOUT, run};
use crate::house::root;
use crate::node::fixture::{Gateway, Node, id, shell};

fn packaged(name: &str) -> String {
    fs::read_to_string(root().join("packaging").join(name)).unwrap()
}

/// The units, and whether they are for a user's service manager.
const UNITS: &[(&str, bool)] = &[
    ("systemd/abide.service", false),
    ("systemd/user/abide.service", true),
    (NODE_UNITS[0], true),
    (NODE_UNITS[1], false),
];
/// The units of nodes, which have no drain, no requested restart and no programs that go on.
const NODE_UNITS: [&str; 2] = [
    "systemd/user/abide-node.service",
    "systemd/abide-node@.service",
];
/// The sockets of the units with the same name.
const SOCKETS: &[(&str, bool)] = &[
    ("systemd/abide.socket", false),
    ("systemd/user/abide.socket", true),
];
/// Is appended to the machine-wide unit.
const STRICT: &str = "systemd/hardening-strict.conf";

/// The values of a key in a unit.
fn values<'a>(unit: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = unit.lines().filter_map(|line| line.split_once('='));
    lines
        .filter(move |(name, _)| *name == key)
        .map(|(_, value)| value)
}

fn seconds(text: &str) -> u64 {
    text.trim_end_matches('s').parse().unwrap()
}

#[test]
fn the_units_say_what_the_program_does() {
    for (name, _) in UNITS {
        let unit = packaged(name);
        let start = values(&unit, "ExecStart").next().unwrap();
        let (program, line) = start.split_once(' ').unwrap();
        assert!(
            program.starts_with('/') || program.starts_with("%h/"),
            "{program}"
        );
        let line: Vec<&str> = line.split(' ').collect();
        assert!(accepts(&line), "{name}: {start}");
        let value = |key| values(&unit, key).next().unwrap();
        assert_eq!(value("Type"), "notify");
        assert_eq!(value("OOMPolicy"), "continue");
        if NODE_UNITS.contains(name) {
            assert_eq!(value("RestartPreventExitStatus"), "9 11 75 77 78");
            assert_eq!(value("KillMode"), "mixed");
            continue;
        }
        // Programs of runs survive a stop of the daemon.
        assert_eq!(value("KillMode"), "process");
        // The daemon is given the same timeout that systemd applies.
        let stop = seconds(values(&unit, "TimeoutStopSec").next().unwrap());
        let told = values(&unit, "Environment")
            .find_map(|value| value.strip_prefix("ABIDE_STOP_TIMEOUT="))
            .unwrap();
        assert_eq!(seconds(told), stop, "{name}");
        assert_eq!(value("RestartForceExitStatus"), "79");
        assert_eq!(value("SuccessExitStatus"), "79");
        assert_eq!(value("RestartPreventExitStatus"), "75 77 78");
    }
    assert!(
        !accepts(&["serve", "--no-such-option"]),
        "this check checks"
    );
}

/// Does the command line of the binary accept these arguments?
fn accepts(line: &[&str]) -> bool {
    let mut command = Command::new(env!("CARGO_BIN_EXE_abide"));
    // The arguments before `--help` are parsed first, so help is printed only if they are valid.
    command.args(line).arg("--help").stdin(Stdio::null());
    command.output().unwrap().status.success()
}

/// Runs `systemd-analyze` with these arguments; `None` without one.
fn analyze(folder: &Path, arguments: &[&str]) -> Option<(bool, String)> {
    let mut command = Command::new("systemd-analyze");
    command.args(arguments).env("XDG_RUNTIME_DIR", folder);
    let output = command.output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8(text).unwrap()))
}

/// The unit with the program of this test: systemd-analyze checks that it exists.
fn with_program(unit: &str) -> String {
    let start = values(unit, "ExecStart").next();
    let program = start.map(|start| start.split_once(' ').unwrap().0);
    program.map_or(unit.to_owned(), |program| {
        unit.replace(
            &format!("ExecStart={program}"),
            &format!("ExecStart={}", env!("CARGO_BIN_EXE_abide")),
        )
    })
}

#[test]
fn systemd_finds_no_fault_in_the_units() {
    let folder = tempfile::tempdir().unwrap();
    let strict = format!("{}{}", packaged("systemd/abide.service"), packaged(STRICT));
    let texts = UNITS.iter().chain(SOCKETS);
    let texts = texts.map(|(name, user)| (*name, *user, packaged(name)));
    for (name, user, unit) in texts.chain([(STRICT, false, strict)]) {
        let unit = with_program(&unit);
        let file = folder.path().join(match name.rsplit_once('/').unwrap().1 {
            "hardening-strict.conf" => "abide.service",
            "abide-node@.service" => "abide-node@root.service",
            name => name,
        });
        let verify = |text: &str| {
            fs::write(&file, text).unwrap();
            let mode = if user { "--user" } else { "--system" };
            analyze(folder.path(), &["verify", mode, file.to_str().unwrap()])
        };
        let Some((good, said)) = verify(&unit) else {
            println!("skipped: there is no systemd-analyze here");
            return;
        };
        let own = file.file_name().unwrap().to_str().unwrap();
        assert!(good && !said.contains(own), "{name}: {said}");
        let broken = unit.replace("Type=notify", "Type=tape");
        let broken = broken.replace("ListenStream=127.0.0.1:7777", "ListenStream=tape");
        let (_, said) = verify(&broken).unwrap();
        assert!(said.contains(own), "this check checks: {said}");
        if !name.ends_with("socket") {
            // The service of a socket has to be there.
            fs::write(&file, &unit).unwrap();
        }
    }
}

#[test]
fn the_hardening_of_the_machine_wide_unit_is_as_documented() {
    let folder = tempfile::tempdir().unwrap();
    let standard = packaged("systemd/abide.service");
    let strict = format!("{standard}{}", packaged(STRICT));
    let documented = documented_ratings();
    assert!(
        documented[0] <= 3.0 && documented[1] <= 2.5,
        "{documented:?}"
    );
    for (unit, rating) in [standard, strict].into_iter().zip(documented) {
        let file = folder.path().join("abide.service");
        fs::write(&file, with_program(&unit)).unwrap();
        let arguments = ["security", "--offline=true", file.to_str().unwrap()];
        let Some((_, said)) = analyze(folder.path(), &arguments) else {
            println!("skipped: there is no systemd-analyze here");
            return;
        };
        let level = said.lines().last().unwrap().split_once(": ").unwrap().1;
        let level: f64 = level.split(' ').next().unwrap().parse().unwrap();
        // Other versions of systemd weigh differently; none may find it less strict than documented.
        assert!(level <= rating, "{level}, documented as {rating}");
        if said_version(folder.path()).contains("systemd 252") {
            assert_eq!(level, rating);
        }
    }
}

/// The ratings in docs/service.md: standard and strict.
fn documented_ratings() -> [f64; 2] {
    let text = fs::read_to_string(root().join("docs/service.md")).unwrap();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, rest) = text
        .split_once("`systemd-analyze security` of systemd 252 rates them ")
        .unwrap();
    let mut numbers = rest
        .split([' ', ','])
        .filter_map(|word| word.trim_end_matches('.').parse::<f64>().ok());
    [numbers.next().unwrap(), numbers.next().unwrap()]
}

fn said_version(folder: &Path) -> String {
    analyze(folder, &["--version"]).map_or(String::new(), |(_, said)| said)
}

#[test]
fn a_node_is_started_and_stopped_as_its_units_say() {
    run(async {
        let gateway = Gateway::new().await;
        let node = Node::paired(&gateway).await;
        let unpaired = Node::named("new");
        for (name, number) in NODE_UNITS.into_iter().zip([id(1), id(2)]) {
            let unit = packaged(name);
            let value = |key| values(&unit, key).next().unwrap();
            let words: Vec<&str> = value("ExecStart").split(' ').skip(1).collect();
            let final_codes: Vec<i32> = value("RestartPreventExitStatus")
                .split(' ')
                .map(|code| code.parse().unwrap())
                .collect();
            // Type=notify: it counts as started once it says so.
            let path = node.path().join("notify");
            let _ = fs::remove_file(&path);
            let socket = UnixDatagram::bind(&path).unwrap();
            socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            let mut command = node.command(&words);
            let watchdog = seconds(value("WatchdogSec")) * 1_000_000;
            command
                .env("NOTIFY_SOCKET", &path)
                .env("WATCHDOG_USEC", watchdog.to_string());
            let process = node.started(command);
            let mut link = gateway.welcome(&node).await.0;
            let started = tokio::task::spawn_blocking(move || {
                let mut bytes = [0; 4096];
                loop {
                    let length = socket.recv(&mut bytes).unwrap();
                    if std::str::from_utf8(&bytes[..length])
                        .unwrap()
                        .contains("READY=1")
                    {
                        return;
                    }
                }
            });
            started.await.unwrap();
            // KillMode=mixed: the signal to the node ends the program of a call, too.
            link.call(number, shell("exec sleep 4000")).await;
            let stop = Duration::from_secs(seconds(value("TimeoutStopSec")));
            let status = tokio::time::timeout(stop, process.stop()).await.unwrap();
            // Restart=on-failure: a stop is none.
            assert_eq!(status, Some(0), "{name}");
            drop(link);

            // Not paired: a repeat would fail as well.
            let output = unpaired.output(&words).await;
            let code = output.status.code().unwrap();
            assert!(final_codes.contains(&code), "{name}: {output:?}");
        }
    });
}

#[test]
fn the_launchd_files_are_well_formed_and_start_the_program() {
    for label in ["org.abide.daemon", "org.abide.node"] {
        let text = packaged(&format!("launchd/{label}.plist"));
        let found = elements(&text);
        let after = |key: &str| {
            let at = found
                .iter()
                .position(|(name, text)| name == "key" && text == key);
            &found[at.unwrap_or_else(|| panic!("no {key}")) + 1..]
        };
        let arguments: Vec<&str> = after("ProgramArguments")
            .iter()
            .take_while(|(name, _)| name == "string")
            .map(|(_, text)| text.as_str())
            .collect();
        assert!(arguments[0].ends_with("/abide"), "{arguments:?}");
        assert!(accepts(&arguments[1..]), "{arguments:?}");
        assert_eq!(after("Label")[0].1, label);
        assert_eq!(after("ABIDE_SUPERVISOR")[0].1, "launchd");
        if label == "org.abide.daemon" {
            let stop = seconds(&after("ExitTimeOut")[0].1);
            assert_eq!(seconds(&after("ABIDE_STOP_TIMEOUT")[0].1), stop);
            assert!(text.contains("<key>AbandonProcessGroup</key>\n  <true/>"));
        }
    }
    for broken in [
        "</dict></plist>",
        "<plist><dict></plist>",
        "<a>&</a>",
        "<a><b></a></b>",
    ] {
        let read = std::panic::catch_unwind(|| elements(broken));
        assert!(read.is_err(), "taken for well-formed: {broken}");
    }
}

/// The elements that contain only text, in order. Panics on mismatched tags or an unescaped
/// ampersand: the file is then invalid XML.
fn elements(xml: &str) -> Vec<(String, String)> {
    let mut rest = xml;
    let mut open: Vec<&str> = Vec::new();
    let mut found = Vec::new();
    let mut text = "";
    while let Some(start) = rest.find('<') {
        text = if start > 0 { &rest[..start] } else { text };
        assert!(!text.contains('&') || text.contains(';'), "{text}");
        rest = &rest[start..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            rest = &comment[comment.find("-->").unwrap() + 3..];
            continue;
        }
        let end = rest.find('>').unwrap();
        let tag = &rest[1..end];
        rest = &rest[end + 1..];
        if tag.starts_with('?') || tag.starts_with('!') || tag.ends_with('/') {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
            if matches!(name, "key" | "string" | "integer") {
                found.push((name.to_owned(), text.to_owned()));
            }
        } else {
            open.push(tag.split(' ').next().unwrap());
            text = "";
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    found
}

#[test]
fn everything_packaged_is_looked_at() {
    let mut found = Vec::new();
    let mut folders = vec![root().join("packaging")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root().join("packaging")).unwrap();
                found.push(name.to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    let looked_at = [
        // Packages: .ci/run builds and installs those that take little time, docs/packages.md has the rest.
        "build",
        "deb/lintian-overrides",
        "deb/postinst",
        "deb/postrm",
        "deb/prerm",
        "docker/Dockerfile",
        // Run manually: it builds everything from scratch.
        "first-minutes",
        // Compared with the metrics by their own test.
        "grafana/abide.json",
        "homebrew/abide.rb.in",
        "launchd/org.abide.daemon.plist",
        "launchd/org.abide.node.plist",
        "npm/abide.js",
        "npm/package.json.in",
        "npm/platform.json.in",
        "prometheus/alerts.yml",
        "prometheus/alerts_test.yml",
        "pypi/pyproject.toml",
        // Run manually: it takes minutes.
        "soak",
        "systemd/abide-node@.service",
        "systemd/abide.service",
        "systemd/abide.socket",
        "systemd/hardening-strict.conf",
        "systemd/user/abide-node.service",
        "systemd/user/abide.service",
        "systemd/user/abide.socket",
        "test",
        // Run manually: it needs root and boots a container.
        "test-machine",
    ];
    assert_eq!(found, looked_at);
}

#[test]
fn the_scripts_have_no_faults_that_can_be_seen_without_running_them() {
    let scripts = [
        "build",
        "deb/postinst",
        "deb/postrm",
        "deb/prerm",
        "first-minutes",
        "soak",
        "test",
        "test-machine",
    ];
    let scripts = scripts.map(|name| root().join("packaging").join(name));
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken");
    fs::write(&broken, "#!/bin/sh\nif true; then\n").unwrap();
    // As in .ci/run.
    for checker in [&["bash", "-n"][..], &["shellcheck", "-S", "warning"]] {
        let check = |path: &Path| {
            let mut command = Command::new(checker[0]);
            let output = command.args(&checker[1..]).arg(path).output().ok()?;
            let said = [output.stdout, output.stderr].concat();
            Some((output.status.success(), String::from_utf8(said).unwrap()))
        };
        let Some((accepted, _)) = check(&broken) else {
            println!("skipped: there is no {} here", checker[0]);
            continue;
        };
        assert!(!accepted, "this check checks");
        for script in &scripts {
            let (accepted, said) = check(script).unwrap();
            assert!(accepted, "{}: {said}", script.display());
        }
    }
}
