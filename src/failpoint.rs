//! Named points at which a test can kill the process, make it panic or hang, or observe that it
//! passed. They exist in builds with debug assertions, as `cargo test` and `cargo run` make them,
//! and in builds with the feature `failpoints`; in all other builds they are compiled to nothing.
//!
//! `ABIDE_FAILPOINTS="store.spawn.committed=kill@2;drive.performing=panic@1"` acts at the second
//! and at the first pass, `=hang@1+` at every pass from the first on. `clock.asleep=give:5000@2`
//! substitutes this number from the second read on. `ABIDE_FAILPOINT_TRACE=FILE` appends the name
//! of every point that is passed.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};

/// Whether this build contains failpoints.
const ARE_BUILT: bool = cfg!(any(debug_assertions, feature = "failpoints"));

static TRACE: OnceLock<Mutex<File>> = OnceLock::new();

/// The configured actions, by point name.
static ORDERS: OnceLock<HashMap<String, FailpointOrder>> = OnceLock::new();

/// An action at a point, and at which passes it happens.
struct FailpointOrder {
    act: FailpointAction,
    pass: u64,
    goes_on: bool,
    passes: AtomicU64,
}

#[derive(Clone, Copy)]
enum FailpointAction {
    Kill,
    Panic,
    Hang,
    Give(u64),
}

impl FailpointOrder {
    /// Counts a pass and returns whether the action is due.
    fn is_due(&self) -> bool {
        let now = self.passes.fetch_add(1, Ordering::SeqCst) + 1;
        now == self.pass || self.goes_on && now > self.pass
    }
}

/// The configuration that this process passes to processes of its own program; empty in builds
/// without failpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inherited {
    orders: Option<String>,
    trace: Option<String>,
}

/// The file to execute instead of that of this process: a test may run the library in another
/// program. `None` outside of such a test.
pub fn own_program() -> Option<PathBuf> {
    match ARE_BUILT {
        true => std::env::var_os("ABIDE_FAILPOINT_PROGRAM").map(PathBuf::from),
        false => None,
    }
}

/// The configuration of this process for one that it starts.
pub fn to_inherit() -> Inherited {
    if !ARE_BUILT {
        return Inherited::default();
    }
    Inherited {
        orders: std::env::var("ABIDE_FAILPOINTS").ok(),
        trace: std::env::var("ABIDE_FAILPOINT_TRACE").ok(),
    }
}

/// Takes over the configuration of the process that started this one, which has checked it.
pub fn inherit(given: &Inherited) {
    if ARE_BUILT {
        // The daemon that read the same configuration has started with it.
        let _ = configure(given.orders.as_deref(), given.trace.as_deref());
    }
}

/// Passes the point `name` and performs the configured action.
pub fn reach(name: &str) {
    if !ARE_BUILT {
        return;
    }
    if let Some(trace) = TRACE.get() {
        let mut file = trace.lock().unwrap_or_else(PoisonError::into_inner);
        // One write for a line, because the processes of a keeper append to the same file. If it
        // cannot be written, the test sees a point that was never passed and fails.
        let _ = file.write_all(format!("{name}\n").as_bytes());
    }
    let Some(order) = ORDERS.get().and_then(|orders| orders.get(name)) else {
        return;
    };
    if !order.is_due() {
        return;
    }
    match order.act {
        FailpointAction::Kill => kill(),
        FailpointAction::Panic => panic!("a test asked for this panic"),
        FailpointAction::Hang => hang(),
        // A number takes effect in [`given`].
        FailpointAction::Give(_) => {}
    }
}

/// The number a test substitutes for one from the system; `None` if there is none.
pub fn substituted(name: &str) -> Option<u64> {
    if !ARE_BUILT {
        return None;
    }
    let order = ORDERS.get()?.get(name)?;
    match order.act {
        FailpointAction::Give(number) => order.is_due().then_some(number),
        FailpointAction::Kill | FailpointAction::Panic | FailpointAction::Hang => None,
    }
}

/// The error of the system that a test substitutes for a success: `=give:28` is that of a full disk.
pub fn refused(name: &str) -> std::io::Result<()> {
    let number = substituted(name).and_then(|number| i32::try_from(number).ok());
    match number {
        Some(number) => Err(std::io::Error::from_raw_os_error(number)),
        None => Ok(()),
    }
}

/// Passes the point `store.<command>.<edge>`.
pub fn reach_edge(command: &str, edge: &str) {
    if ARE_BUILT {
        reach(&format!("store.{command}.{edge}"));
    }
}

/// Reads the configuration from the environment. An invalid action is an error, so that a test
/// cannot pass because of a typo.
pub fn configure_from_env() -> Result<(), String> {
    let Inherited { orders, trace } = to_inherit();
    configure(orders.as_deref(), trace.as_deref())
}

fn configure(orders: Option<&str>, trace: Option<&str>) -> Result<(), String> {
    if let Some(path) = trace {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|fault| format!("{path}: {fault}"))?;
        let _ = TRACE.set(Mutex::new(file));
    }
    let Some(text) = orders else {
        return Ok(());
    };
    let orders = text.split(';').filter(|order| !order.is_empty());
    let orders = orders
        .map(|order| read(order).map_err(|fault| format!("ABIDE_FAILPOINTS {order:?}: {fault}")));
    let _ = ORDERS.set(orders.collect::<Result<_, _>>()?);
    Ok(())
}

/// Parses one action with the name of its point.
fn read(order: &str) -> Result<(String, FailpointOrder), String> {
    let (name, action) = order.split_once('=').ok_or("no '='")?;
    let (action, pass) = action.split_once('@').unwrap_or((action, "1"));
    let (pass, goes_on) = match pass.strip_suffix('+') {
        Some(pass) => (pass, true),
        None => (pass, false),
    };
    let pass = pass.parse().map_err(|_| "no number after '@'")?;
    let act = match (action, action.strip_prefix("give:")) {
        (_, Some(number)) => {
            FailpointAction::Give(number.parse().map_err(|_| "no number after 'give:'")?)
        }
        ("kill", _) => FailpointAction::Kill,
        ("panic", _) => FailpointAction::Panic,
        ("hang", _) => FailpointAction::Hang,
        _ => return Err("expected kill, panic, hang or give:NUMBER".to_owned()),
    };
    let order = FailpointOrder {
        act,
        pass,
        // A substituted number applies to all later passes.
        goes_on: goes_on || matches!(act, FailpointAction::Give(_)),
        passes: AtomicU64::new(0),
    };
    Ok((name.to_owned(), order))
}

/// Blocks this thread forever, as a disk that no longer responds would.
fn hang() -> ! {
    loop {
        std::thread::park();
    }
}

/// Ends the process immediately, as a power failure would: no further code runs.
fn kill() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    hang();
}
