//! Service managers of a few lines, as commands on the PATH: they start what the installed file says,
//! and answer in the words of systemd and launchd.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::Place;

/// What both managers share: one process with its status, and a log.
const PROCESS: &str = r#"
F="$FAKE_MANAGER"
pid() { cat "$F/pid" 2>/dev/null || echo 0; }
alive() { [ "$(pid)" != 0 ] && kill -0 "$(pid)" 2>/dev/null && ! grep -q ') Z' "/proc/$(pid)/stat"; }
# The arguments are the command line, after variables.
run() {
  rm -f "$F/status" "$F/pid"
  if [ -f "$F/sockets" ]; then
    { printf "cd '%s'; exec env -i LISTEN_FDS=\$LISTEN_FDS LISTEN_PID=\$\$" "$HOME"
      for word in HOME="$HOME" PATH=/usr/bin:/bin NOTIFY_SOCKET="$F/notify" "$@"; do
        printf " '%s'" "$(printf %s "$word" | sed "s/'/'\\\\''/g")"
      done; } > "$F/start.new"
    mv "$F/start.new" "$F/start"
  else
    ( cd "$HOME"; env -i HOME="$HOME" PATH=/usr/bin:/bin NOTIFY_SOCKET="$F/notify" "$@" &
      echo $! > "$F/pid"; wait $!; echo $? > "$F/status" ) >> "$F/journal" 2>&1 < /dev/null &
  fi
  while ! [ -s "$F/pid" ]; do :; done
}
end() {
  alive && kill -TERM "$(pid)"
  while alive; do sleep 0.02; done
  rm -f "$F/pid"
}
"#;

/// Holds the sockets of a socket unit: opens them, and starts the service with them as descriptors from 3
/// on. USR1 closes them.
const HOLDER: &str = r#"
use strict;
use Socket;
use POSIX qw(WNOHANG dup2);
my ($folder, @addresses) = @ARGV;
$^F = 255;
my @sockets;
for my $address (@addresses) {
    my $socket;
    if ($address =~ m{^/}) {
        (my $parent = $address) =~ s{/[^/]*$}{};
        system('mkdir', '-p', '-m', '700', $parent);
        unlink($address);
        socket($socket, PF_UNIX, SOCK_STREAM, 0) or die $!;
        bind($socket, pack_sockaddr_un($address)) or die "$address: $!";
        chmod(0600, $address);
    } else {
        my ($host, $port) = split(/:/, $address);
        socket($socket, PF_INET, SOCK_STREAM, 0) or die $!;
        setsockopt($socket, SOL_SOCKET, SO_REUSEADDR, 1);
        bind($socket, pack_sockaddr_in($port, inet_aton($host))) or die "$address: $!";
    }
    listen($socket, 128) or die $!;
    push(@sockets, $socket);
}
sub note { open(my $file, '>', "$folder/$_[0].new") or die; print $file "$_[1]\n"; close($file);
           rename("$folder/$_[0].new", "$folder/$_[0]"); }
my ($child, $closing) = (0, 0);
$SIG{USR1} = sub { $closing = 1; };
note('sockets', $$);
while (1) {
    if ($child && waitpid($child, WNOHANG) == $child) {
        note('status', $? & 127 ? 128 + ($? & 127) : $? >> 8);
        $child = 0;
    }
    if ($closing && @sockets) { close($_) for @sockets; @sockets = (); }
    exit(0) if $closing && !$child;
    if (!$closing && !$child && rename("$folder/start", "$folder/started")) {
        $child = fork();
        if (!$child) {
            dup2(fileno($sockets[$_]), 100 + $_) for 0 .. $#sockets;
            POSIX::close($_) for 3 .. 99;
            dup2(100 + $_, 3 + $_) for 0 .. $#sockets;
            POSIX::close($_) for 100 .. 100 + $#sockets;
            $ENV{LISTEN_FDS} = scalar(@sockets);
            exec('/bin/sh', "$folder/started") or POSIX::_exit(127);
        }
        note('pid', $child);
    }
    select(undef, undef, undef, 0.005);
}
"#;

const SYSTEMCTL: &str = r#"
U="$HOME/.config/systemd/user"
echo "systemctl $*" >> "$F/calls"
[ "$1" = --user ] && shift
words() { sed -n "s/^$1=//p" "$U/abide.service" | sed -e "s,%h,$HOME,g" -e 's/%%/%/g' -e 's/\$\$/\\$/g'; }
begin() {
  set --
  eval "set -- $(words Environment | tr '\n' ' ')"
  file=$(words EnvironmentFile | sed 's/^-//')
  [ -f "$file" ] && while read -r line; do set -- "$@" "$line"; done < "$file"
  line=$(words ExecStart)
  eval "run \"\$@\" $line"
}
listen() {
  sleep_until_closed
  perl "$F/holder" "$F" $(sed -n 's/^ListenStream=//p' "$U/abide.socket" | sed -e "s,%h,$HOME,g" -e 's/%%/%/g') \
    < /dev/null >> "$F/journal" 2>&1 &
  while ! [ -s "$F/sockets" ]; do sleep 0.01; done
}
sleep_until_closed() {
  [ -f "$F/sockets" ] || return 0
  holder=$(cat "$F/sockets"); rm -f "$F/sockets"
  kill -USR1 "$holder" 2>/dev/null
  alive || while kill -0 "$holder" 2>/dev/null && ! grep -q ') Z' "/proc/$holder/stat"; do sleep 0.01; done
}
case "$1" in
  is-system-running) cat "$F/manager" 2>/dev/null || echo running; exit 1 ;;
  daemon-reload|reset-failed) ;;
  enable) touch "$F/enabled-$2" ;;
  disable) rm -f "$F/enabled-$3"; case "$3" in abide.service) end ;; *) sleep_until_closed ;; esac ;;
  restart) case "$*" in *abide.service) end; begin ;; *) listen ;; esac ;;
  start)
    alive && { echo "Socket service abide.service already active, refusing." >&2; exit 1; }
    listen ;;
  stop) case "$2" in abide.service) end ;; *) sleep_until_closed ;; esac ;;
  show)
    if [ "$2" = abide.socket ]; then
      [ -f "$F/sockets" ] && echo ActiveState=active || echo ActiveState=inactive
      [ -f "$F/enabled-abide.socket" ] && echo UnitFileState=enabled || echo UnitFileState=disabled
      exit 0
    fi
    status=$(cat "$F/status" 2>/dev/null || echo 0)
    if alive; then echo ActiveState=active; echo SubState=running; echo "MainPID=$(pid)"
    elif [ "$status" = 0 ]; then echo ActiveState=inactive; echo SubState=dead; echo MainPID=0
    else echo ActiveState=failed; echo SubState=failed; echo MainPID=0; fi
    echo "ExecMainStatus=$status"; echo NRestarts=0
    [ -f "$F/enabled-abide.service" ] && echo UnitFileState=enabled || echo UnitFileState=disabled ;;
  *) echo "unknown command $1" >&2; exit 1 ;;
esac
"#;

const LOGINCTL: &str = r#"
case "$1" in
  show-user) cat "$F/linger" 2>/dev/null || echo no ;;
  enable-linger) echo yes > "$F/linger" ;;
esac
"#;

const JOURNALCTL: &str = r#"
echo "journalctl $*" >> "$F/calls"
cat "$F/journal"
"#;

const LAUNCHCTL: &str = r#"
echo "launchctl $*" >> "$F/calls"
unescape() { sed -e 's/&lt;/</g' -e 's/&gt;/>/g' -e 's/&amp;/\&/g' -e "s/'/'\\\\''/g" -e "s/.*/'&'/"; }
within() { awk -v key="$1" '$0 ~ "<key>" key "</key>" { on = 1; next } /<\/array>|<\/dict>/ { on = 0 } on' "$F/loaded"; }
begin() {
  set --
  pairs=$(within EnvironmentVariables | sed -n 's,.*<[a-z]*>\(.*\)</[a-z]*>,\1,p' | paste -d = - - | unescape | tr '\n' ' ')
  line=$(within ProgramArguments | sed -n 's,.*<string>\(.*\)</string>,\1,p' | unescape | tr '\n' ' ')
  mkdir -p "$HOME/Library/Logs"; touch "$F/journal"; ln -sf "$F/journal" "$HOME/Library/Logs/abide.log"
  eval "run $pairs $line"
}
case "$1 $2" in
  "bootstrap "*)
    # The first attempts of a test find launchd busy.
    left=$(cat "$F/busy" 2>/dev/null || echo 0)
    if [ "$left" -gt 0 ]; then
      echo $((left - 1)) > "$F/busy"; echo 'Bootstrap failed: 5: Input/output error' >&2; exit 5
    fi
    [ -f "$F/loaded" ] && { echo 'Bootstrap failed: 37: Operation already in progress' >&2; exit 37; }
    cp "$3" "$F/loaded"; begin ;;
  # Returns before the process has ended.
  "bootout "*)
    ( end; rm -f "$F/loaded" ) > /dev/null 2>&1 < /dev/null &
    echo 'Boot-out failed: 36: Operation now in progress' >&2; exit 36 ;;
  "enable "*|"disable "*) ;;
  "print "*/org.abide.daemon)
    [ -f "$F/loaded" ] || { echo 'Could not find service' >&2; exit 113; }
    if alive; then printf '\tstate = running\n\tpid = %s\n' "$(pid)"; else printf '\tstate = not running\n'; fi
    status=$(cat "$F/status" 2>/dev/null || echo '(never exited)')
    case "$status" in 75) status='75: EX_TEMPFAIL' ;; 78) status='78: EX_CONFIG' ;; esac
    printf '\tlast exit code = %s\n' "$status" ;;
  "print "*) echo domain ;;
esac
"#;

/// Which commands are there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Systemd,
    Launchd,
    /// Neither.
    Nothing,
}

/// A service manager in a place's folder. What it has started is killed on drop.
pub(crate) struct ScriptedManager {
    place: Place,
    folder: PathBuf,
}

/// The outcome of a command.
pub(crate) struct Told {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Told {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("{} {}", self.out, self.err))
    }
}

impl ScriptedManager {
    pub(crate) fn new(place: Place, kind: Kind) -> ScriptedManager {
        let folder = place.path().join("manager");
        let bin = folder.join("bin");
        fs::create_dir_all(&bin).unwrap();
        let scripts: &[(&str, &str)] = match kind {
            Kind::Systemd => &[
                ("systemctl", SYSTEMCTL),
                ("loginctl", LOGINCTL),
                ("journalctl", JOURNALCTL),
            ],
            Kind::Launchd => &[("launchctl", LAUNCHCTL)],
            Kind::Nothing => &[],
        };
        for (name, text) in scripts {
            let path = bin.join(name);
            // The tools that the scripts use are not on the PATH of the tested program.
            let path_of_tools = "PATH=/usr/bin:/bin; export PATH\n";
            fs::write(&path, format!("#!/bin/sh\n{path_of_tools}{PROCESS}{text}")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(folder.join("holder"), HOLDER).unwrap();
        ScriptedManager { place, folder }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The folder with what the manager knows.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The unit that a user's service has.
    pub(crate) fn unit(&self) -> PathBuf {
        let units = self.place.path().join(".config/systemd/user");
        units.join("abide.service")
    }

    /// The calls of the manager's commands so far.
    pub(crate) fn calls(&self) -> String {
        fs::read_to_string(self.folder.join("calls")).unwrap_or_default()
    }

    /// Process id of what it has started; 0 if it runs no more.
    pub(crate) fn pid(&self) -> i32 {
        let text = fs::read_to_string(self.folder.join("pid")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// As a user who has chosen no folder: without the variables that name those of this place.
    pub(crate) fn unnamed(&self, arguments: &[&str]) -> Told {
        let mut command = self.command(arguments);
        command
            .env_remove("ABIDE_STATE_DIR")
            .env_remove("ABIDE_CONFIG");
        told(&mut command)
    }

    /// A command of the program at this path; only the manager's commands are on its PATH.
    pub(crate) fn command_of(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).env_clear();
        let usual = self.place.command(&[]);
        for (name, value) in usual.get_envs() {
            command.env(name, value.unwrap());
        }
        command.env("FAKE_MANAGER", &self.folder);
        command.env("PATH", self.folder.join("bin"));
        command.current_dir(self.place.path());
        command.stdin(std::process::Stdio::null());
        command
    }

    /// A command of the program that is tested.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_abide")), arguments)
    }

    /// Runs a command of the program that is tested.
    pub(crate) fn abide(&self, arguments: &[&str]) -> Told {
        told(&mut self.command(arguments))
    }
}

impl Drop for ScriptedManager {
    fn drop(&mut self) {
        let holder = fs::read_to_string(self.folder.join("sockets")).unwrap_or_default();
        let holder = rustix::process::Pid::from_raw(holder.trim().parse().unwrap_or(0));
        if let Some(holder) = holder {
            let _ = rustix::process::kill_process(holder, rustix::process::Signal::USR1);
        }
        let pid = rustix::process::Pid::from_raw(self.pid());
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            // The script that started it takes its status.
            while rustix::process::test_kill_process(pid).is_ok() {
                std::thread::yield_now();
            }
        }
    }
}

pub(crate) fn told(command: &mut Command) -> Told {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Told {
        code: output.status.code().unwrap_or(-1),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}
