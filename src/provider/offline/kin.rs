//! Words that programmers use for the same thing: someone who asks where configuration is
//! read will not find `load_settings` by the letters alone.

/// For words that begin with the first, the texts that code has in their place.
const KIN: &[(&str, &[&str])] = &[
    ("access", &["allow", "deny", "permit"]),
    ("argument", &["args", "argv", "clap", "argparse"]),
    (
        "auth",
        &["token", "login", "password", "credential", "bearer"],
    ),
    ("cach", &["memo", "lru"]),
    ("cancel", &["abort", "interrupt"]),
    ("clean", &["purge", "sweep", "remove"]),
    ("command line", &["args", "argv", "clap", "argparse"]),
    ("concurren", &["spawn", "mutex", "semaphore", "atomic"]),
    (
        "config",
        &["settings", "env::var", "getenv", "environ", "dotenv"],
    ),
    ("connect", &["socket", "accept", "listener"]),
    ("creat", &["new(", "insert", "open("]),
    ("database", &["sqlite", "sql", "postgres"]),
    ("delet", &["remove", "drop", "unlink"]),
    ("depend", &["cargo.toml", "package.json", "requirements"]),
    ("encod", &["serialize", "to_bytes", "escape"]),
    (
        "enforc",
        &[
            "exceed", "refuse", "reject", "acquire", "too many", "too_many",
        ],
    ),
    (
        "entry point",
        &["fn main", "def main", "__main__", "int main", "func main"],
    ),
    ("environment", &["env::var", "getenv", "environ", "setenv"]),
    ("error", &["fail", "fault", "panic", "exception"]),
    ("handl", &["catch", "rescue", "dispatch"]),
    ("initial", &["init", "setup", "new("]),
    (
        "limit",
        &[
            "max_",
            "maximum",
            "quota",
            "capacity",
            "semaphore",
            "threshold",
        ],
    ),
    ("lock", &["mutex", "rwlock", "flock"]),
    ("log", &["tracing", "println", "logger", "eprintln"]),
    ("memory", &["alloc", "buffer", "heap"]),
    ("network", &["socket", "tcp", "http"]),
    ("pars", &["deserialize", "decode", "from_str", "tokeniz"]),
    ("permission", &["allow", "deny", "chmod", "forbidden"]),
    ("persist", &["save", "write", "store", "commit"]),
    ("read", &["load", "parse", "open("]),
    (
        "report",
        &[
            "eprintln", "stderr", "display", "log::", "error!", "warn!", "notify",
        ],
    ),
    ("request", &["req", "handler"]),
    ("retr", &["backoff", "attempt"]),
    ("save", &["write", "persist", "store"]),
    ("schedul", &["queue", "cron", "timer", "tick"]),
    ("serializ", &["encode", "serde", "to_string", "to_json"]),
    ("setting", &["config", "option"]),
    ("shut", &["shutdown", "drain", "terminate", "sigterm"]),
    (
        "start",
        &["fn main", "init", "boot", "launch", "serve", "__main__"],
    ),
    ("stop", &["shutdown", "terminate", "abort", "drain"]),
    ("stor", &["save", "persist", "insert", "write"]),
    ("test", &["assert"]),
    ("thread", &["spawn", "worker", "pool"]),
    ("timeout", &["deadline", "elapsed", "expire"]),
    ("valid", &["check", "verify", "sanitiz", "ensure"]),
    ("writ", &["save", "store", "persist", "flush"]),
];

/// Texts that stand for `word` in code.
pub(super) fn kin(word: &str) -> &'static [&'static str] {
    KIN.iter()
        .filter(|(start, _)| word.starts_with(start))
        // The longest start is the closest: `command line` before `command`.
        .max_by_key(|(start, _)| start.len())
        .map_or(&[], |(_, texts)| texts)
}
