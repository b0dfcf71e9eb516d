//! Options of programs: global ones before a subcommand, and those that make a program run or load
//! something else. Sources are the programs' manuals.

use super::builtins;
use super::scripts;
use super::word::ShellWord;

/// A requirement that no pattern can name: only a rule without a pattern, or `*`, allows such a
/// command.
pub(super) const UNNAMED: &str = "\0";

/// Options before a program's subcommand.
struct Globals {
    name: &'static str,
    /// Options that take a value, as the next word or after `=`.
    valued: &'static [&'static str],
    /// Options without a value.
    flags: &'static [&'static str],
    /// The options above that do not change what the command does.
    harmless: &'static [&'static str],
}

#[rustfmt::skip]
const GLOBALS: &[Globals] = &[
    Globals {
        name: "git",
        valued: &[
            "-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix",
            "--config-env", "--attr-source",
        ],
        flags: &[
            "-p", "-P", "--paginate", "--no-pager", "--bare", "--no-replace-objects",
            "--literal-pathspecs", "--glob-pathspecs", "--noglob-pathspecs",
            "--icase-pathspecs", "--no-optional-locks", "--no-lazy-fetch", "--no-advice",
            "--exec-path",
        ],
        harmless: &[
            "-P", "--no-pager", "--literal-pathspecs", "--glob-pathspecs",
            "--noglob-pathspecs", "--icase-pathspecs", "--no-optional-locks",
            "--no-lazy-fetch", "--no-advice",
        ],
    },
    Globals {
        name: "docker",
        valued: &[
            "-H", "--host", "-c", "--context", "--config", "-l", "--log-level", "--tlscacert",
            "--tlscert", "--tlskey",
        ],
        flags: &["-D", "--debug", "--tls", "--tlsverify"],
        harmless: &["-D", "--debug"],
    },
    Globals {
        name: "kubectl",
        valued: &[
            "-n", "--namespace", "--context", "--cluster", "--kubeconfig", "-s", "--server",
            "--user", "--token", "--as", "--as-group", "--as-uid", "--request-timeout", "-v",
            "--v", "--certificate-authority", "--client-key", "--client-certificate",
            "--cache-dir",
        ],
        flags: &[
            "--insecure-skip-tls-verify", "--match-server-version", "--warnings-as-errors",
        ],
        harmless: &["--warnings-as-errors"],
    },
    Globals {
        name: "cargo",
        valued: &["--color", "--config", "-C", "-Z"],
        flags: &[
            "-v", "-vv", "--verbose", "-q", "--quiet", "--locked", "--offline", "--frozen",
        ],
        harmless: &["-v", "-vv", "--verbose", "-q", "--quiet"],
    },
    Globals {
        name: "npm",
        valued: &[
            "--prefix", "-C", "--userconfig", "--globalconfig", "--registry", "-w",
            "--workspace", "--loglevel",
        ],
        flags: &[
            "-s", "--silent", "-q", "--quiet", "-d", "--verbose", "-g", "--global", "--ws",
        ],
        harmless: &["-s", "--silent", "-q", "--quiet", "-d", "--verbose"],
    },
    Globals {
        name: "gh",
        valued: &["-R", "--repo"],
        flags: &[],
        harmless: &[],
    },
    Globals {
        name: "systemctl",
        valued: &[
            "-H", "--host", "-M", "--machine", "-t", "--type", "-p", "--property", "-n",
            "--lines", "-o", "--output", "--root", "--state",
        ],
        flags: &[
            "--user", "--system", "--now", "-q", "--quiet", "--no-pager", "--no-block", "-f",
            "--force", "-a", "--all",
        ],
        harmless: &["--no-pager", "-q", "--quiet"],
    },
];

/// The words without the global options before the subcommand, as a rule names the command; `None`
/// if there are none or one is unknown.
pub(super) fn named(words: &[ShellWord]) -> Option<Vec<ShellWord>> {
    without(words, |_| true)
}

/// The same, but `None` also if one of those options changes what the command does.
pub(super) fn plain(words: &[ShellWord]) -> Option<Vec<ShellWord>> {
    without(words, |_| false)
}

fn without(words: &[ShellWord], any: impl Fn(&str) -> bool) -> Option<Vec<ShellWord>> {
    let program = words.first()?;
    let base = program.base();
    // `git-push` in the folder of git's own programs.
    if let Some(sub) = base.strip_prefix("git-")
        && any(sub)
    {
        let mut split = vec![ShellWord::plain("git"), ShellWord::plain(sub)];
        split.extend_from_slice(&words[1..]);
        return Some(split);
    }
    let known = GLOBALS.iter().find(|one| one.name == base)?;
    let mut at = 1;
    while let Some(text) = words.get(at).and_then(ShellWord::known) {
        let head = text.split('=').next().unwrap_or(text);
        let is_toolchain = base == "cargo" && text.starts_with('+');
        if !text.starts_with('-') && !is_toolchain {
            break;
        }
        let short = text.get(..2).filter(|_| !text.starts_with("--"));
        let is_joined = short.is_some_and(|short| known.valued.contains(&short)) && text.len() > 2;
        if !any(head) && !known.harmless.contains(&head) {
            return None;
        }
        match () {
            () if known.valued.contains(&text) => at += 2,
            () if known.valued.contains(&head) || known.flags.contains(&head) => at += 1,
            () if is_joined || is_toolchain => at += 1,
            () => return None,
        }
    }
    if at == 1 || at > words.len() {
        return None;
    }
    let mut named = vec![program.clone()];
    named.extend_from_slice(&words[at..]);
    Some(named)
}

/// True if a program in this folder is what its name says.
pub(super) fn is_standard(name: &str) -> bool {
    const FOLDERS: &[&str] = &["/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"];
    name.rsplit_once('/')
        .is_none_or(|(folder, _)| FOLDERS.contains(&folder))
}

/// What a pattern must name explicitly to allow these words.
pub(super) fn needs(words: &[ShellWord]) -> Vec<String> {
    let Some(program) = words.first() else {
        return Vec::new();
    };
    let base = program.base();
    if base == "git" || base.starts_with("git-") {
        return super::git::needs(words);
    }
    if scripts::is_awk(base) {
        return scripts::awk(&words[1..]);
    }
    if matches!(base, "sed" | "gsed") {
        return scripts::sed(&words[1..]);
    }
    let Some((_, long, short)) = RUNNING.iter().find(|(names, ..)| names.contains(&base)) else {
        return builtins::needs(base, words);
    };
    let mut rest = words[1..].to_vec();
    // `tar xf`: its first word holds options even without a dash.
    if let Some(first) = rest.first_mut().filter(|_| base.ends_with("tar"))
        && !first.text.starts_with('-')
    {
        first.text.insert(0, '-');
    }
    running(&rest, long, short)
}

/// The words that are options in `long` (or an abbreviation of one) or have a letter of
/// `short`. A word that may turn out to be an option yields [`UNNAMED`].
pub(super) fn running(words: &[ShellWord], long: &[&str], short: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in words {
        if word.text == "--" {
            break;
        }
        if word.has_hole() && word.may_be_option() {
            found.push(UNNAMED.to_owned());
            continue;
        }
        let text = word.text.as_str();
        let head = text.split('=').next().unwrap_or(text);
        let is_long = long.iter().any(|option| {
            // Programs accept abbreviated options.
            head == *option
                || (head.len() > 2 && option.starts_with(head) && head.starts_with("--"))
        });
        let letters = text.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
        let is_short = letters.is_some_and(|letters| letters.contains(|c: char| short.contains(c)));
        if is_long || is_short {
            found.push(head.to_owned());
        }
    }
    found
}

/// Programs with options that make them run another program, read other settings or write a file:
/// the long options (and those with one dash), and the letters of the short ones.
#[rustfmt::skip]
const RUNNING: &[(&[&str], &[&str], &str)] = &[
    (&["find"], &["-fprint", "-fprint0", "-fprintf", "-fls", "-files0-from"], ""),
    (&["fd", "fdfind"], &["--exec", "--exec-batch"], "xX"),
    (&["rg"], &["--pre", "--hostname-bin"], ""),
    (&["ag", "less", "man"], &["--pager", "--html", "--lesskey-file", "--log-file"], "PHoO"),
    (&["tar", "bsdtar", "gtar"], &["--to-command", "--checkpoint-action", "--use-compress-program", "--info-script", "--new-volume-script", "--rsh-command", "--rmt-command"], "IF"),
    (&["rsync"], &["--rsh", "--rsync-path", "--config"], "e"),
    (&["ssh", "scp", "sftp"], &[], "oFSE"),
    (&["sort"], &["--compress-program", "--output", "--files0-from"], "o"),
    (&["zip"], &["--unzip-command", "-TT"], ""),
    (&["cargo"], &["--config"], ""),
    (&["npm", "pnpm", "yarn"], &["--script-shell", "--node-options", "--globalconfig", "--userconfig"], ""),
    (&["go"], &["-exec", "-toolexec", "-overlay", "-vettool"], ""),
    (&["make", "gmake"], &["--eval", "--file", "--makefile"], "fE"),
    (&["curl"], &["--config", "--output", "--output-dir", "--remote-name", "--remote-name-all", "--dump-header", "--trace", "--trace-ascii", "--cookie-jar", "--engine", "--proxy", "--netrc-file"], "KoODcx"),
    (&["wget"], &["--use-askpass", "--execute", "--config", "--output-document", "--output-file", "--append-output", "--post-file", "--body-file"], "eOoa"),
    (&["vim", "vi", "nvim", "view", "ex"], &["--cmd"], "cSuws"),
    (&["pytest", "py.test"], &["--override-ini", "--rootdir", "--confcutdir", "--config-file"], "pco"),
    (&["docker", "podman", "kubectl"], &["--kubeconfig", "--config"], ""),
];
