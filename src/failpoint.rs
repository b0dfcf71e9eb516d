//! Named points at which a test may kill the process, make it panic or hang, or see that it
//! came by.
//! Compiled to nothing in every build but `cargo test`'s.
//!
//! `ABIDE_FAILPOINTS="store.spawn.committed=kill@2;drive.performing=panic@1"` acts at the
//! second and at the first pass, `=hang@1+` at every one from the first on; `clock.asleep=give:5000@2` gives this number from the second
//! look on. `ABIDE_FAILPOINT_TRACE=FILE` appends the name of every point that is passed.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

static TRACE: OnceLock<Mutex<File>> = OnceLock::new();

/// Passes the point `name`: acts if a test asked for it.
pub fn reach(name: &str) {
    if !fail::has_failpoints() {
        return;
    }
    if let Some(trace) = TRACE.get() {
        let mut file = trace.lock().unwrap_or_else(PoisonError::into_inner);
        // A trace that cannot be written shows as a point that was never passed.
        let _ = writeln!(file, "{name}");
    }
    fail::fail_point!(name);
}

/// What a test puts in place of a number that the system says; `None` in every other build.
pub fn given(name: &str) -> Option<u64> {
    // The next line is nothing in other builds.
    let _ = name;
    fail::fail_point!(name, |text| text.and_then(|text| text.parse().ok()));
    None
}

/// Passes one edge of a store command.
pub fn reach_edge(command: &str, edge: &str) {
    if fail::has_failpoints() {
        reach(&format!("store.{command}.{edge}"));
    }
}

/// Reads what a test asks for. An order that cannot be read is an error: a test must not
/// pass because of a typing mistake.
pub fn configure_from_env() -> Result<(), String> {
    if !fail::has_failpoints() {
        return Ok(());
    }
    if let Ok(path) = std::env::var("ABIDE_FAILPOINT_TRACE") {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|fault| format!("{path}: {fault}"))?;
        let _ = TRACE.set(Mutex::new(file));
    }
    let Ok(orders) = std::env::var("ABIDE_FAILPOINTS") else {
        return Ok(());
    };
    for order in orders.split(';').filter(|order| !order.is_empty()) {
        configure(order).map_err(|fault| format!("ABIDE_FAILPOINTS {order:?}: {fault}"))?;
    }
    Ok(())
}

fn configure(order: &str) -> Result<(), String> {
    let (name, action) = order.split_once('=').ok_or("no '='")?;
    let (action, pass) = action.split_once('@').unwrap_or((action, "1"));
    let (pass, goes_on) = match pass.strip_suffix('+') {
        Some(pass) => (pass, true),
        None => (pass, false),
    };
    let pass: u64 = pass.parse().map_err(|_| "no number after '@'")?;
    if let Some(number) = action.strip_prefix("give:") {
        let number: u64 = number.parse().map_err(|_| "no number after 'give:'")?;
        return fail::cfg(
            name,
            &match pass {
                1 => format!("return({number})"),
                _ => format!("{}*off->return({number})", pass - 1),
            },
        );
    }
    let act = match action {
        "kill" => kill,
        "panic" => || panic!("a test asked for this panic"),
        "hang" => hang,
        _ => return Err("none of kill, panic, hang and give:NUMBER".to_owned()),
    };
    let passes = Arc::new(AtomicU64::new(0));
    fail::cfg_callback(name, move || {
        let now = passes.fetch_add(1, Ordering::SeqCst) + 1;
        if now == pass || goes_on && now > pass {
            act();
        }
    })
}

/// Holds this thread for ever, as a disk that answers no more would.
fn hang() {
    loop {
        std::thread::park();
    }
}

/// Ends the process as a power cut would: nothing of it runs any more.
fn kill() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    hang();
}
