//! Variables and files on the program's manual page. A test compares the variables with those that
//! the source reads.

/// Environment variables that a user may set, and what they do.
pub(super) const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "ABIDE_STATE_DIR, ABIDE_SOCKET, ABIDE_URL, ABIDE_TOKEN_FILE, ABIDE_PIN",
        "Select the daemon, as the options with these names do. An option overrides them.",
    ),
    ("ABIDE_CONFIG", "File with settings."),
    (
        "ABIDE_SECTION__KEY",
        "One setting of the daemon, such as ABIDE_LANES__MAIN=5. It overrides the file.",
    ),
    (
        "ABIDE_TERMINAL",
        "Name of the terminal that @last belongs to, for scripts that want their own.",
    ),
    (
        "ABIDE_LOG",
        "Filter of the log, such as info or abide=debug.",
    ),
    (
        "ABIDE_SUPERVISOR",
        "Name of a supervisor other than systemd that starts abide serve again after exit code 79.",
    ),
    (
        "ABIDE_STOP_TIMEOUT",
        "How long the supervisor waits before it kills, such as 90s. A drain takes less.",
    ),
    (
        "XDG_CONFIG_HOME, XDG_STATE_HOME, XDG_DATA_HOME, XDG_RUNTIME_DIR",
        "Change the folders below.",
    ),
    ("NO_COLOR", "If it is set, nothing is coloured."),
];

/// Files and folders, and what they hold.
pub(super) const FILES: &[(&str, &str)] = &[
    (
        "~/.config/abide/abide.toml",
        "Settings. abide config lists them with their sources.",
    ),
    (
        "~/.config/abide/agents, .abide/agents",
        "Agents of the user, and of the project in the current folder.",
    ),
    (
        "~/.config/abide/node",
        "Keys and allow-lists of this machine as a node of gateways.",
    ),
    (
        "~/.local/state/abide",
        "The state folder: store (abide.db), address of the daemon (endpoint.json), token, log, \
         backups. No command and no package deletes it.",
    ),
    (
        "/var/lib/abide, /etc/abide/abide.toml",
        "State and settings of the service of the whole machine.",
    ),
];
