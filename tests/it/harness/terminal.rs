//! A command at a pseudo-terminal: its output is rendered as a terminal would, and tests type
//! input.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

use abide::clock::Clock;
use anstream::adapter::StripBytes;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::TEST_TIMEOUT;

/// Ends the input when typed at the beginning of a line.
pub(crate) const CTRL_D: &str = "\u{4}";
/// High enough that no line scrolls off the screen.
const ROWS: u16 = 60;

/// A command at a terminal of 60 rows.
pub(crate) struct Terminal {
    child: Child,
    keys: File,
    written: Receiver<Vec<u8>>,
    /// The raw output so far.
    raw: Vec<u8>,
    /// The output that no search has consumed yet, without control sequences.
    text: Vec<u8>,
    strip: StripBytes,
    screen: vt100::Parser,
}

impl Terminal {
    /// Starts the command with 80 columns, as `xterm`.
    pub(crate) fn start(command: Command) -> Terminal {
        Terminal::sized(command, 80)
    }

    /// Starts the command with this width; a `TERM` that the command has stays.
    pub(crate) fn sized(command: Command, columns: u16) -> Terminal {
        Terminal::of_size(command, columns, ROWS)
    }

    /// Starts the command with this width and height.
    pub(crate) fn of_size(mut command: Command, columns: u16, rows: u16) -> Terminal {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let name = ptsname(&keys, Vec::new()).unwrap().into_string().unwrap();
        let line: OwnedFd = OpenOptions::new()
            .read(true)
            .write(true)
            .open(name)
            .unwrap()
            .into();
        tcsetwinsize(&line, size(columns, rows)).unwrap();
        if !command.get_envs().any(|(name, _)| name == "TERM") {
            command.env("TERM", "xterm");
        }
        let child = command
            .stdin(line.try_clone().unwrap())
            .stdout(line.try_clone().unwrap())
            .stderr(line)
            .spawn()
            .unwrap();
        // The command holds the slave side too, which is closed when the process ends.
        drop(command);
        let keys = File::from(keys);
        let mut master = keys.try_clone().unwrap();
        let (writes, written) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading a terminal that no process holds is an error on this system.
            while let Ok(count @ 1..) = master.read(&mut bytes) {
                if writes.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal {
            child,
            keys,
            written,
            raw: Vec::new(),
            text: Vec::new(),
            strip: StripBytes::new(),
            screen: vt100::Parser::new(rows, columns, 0),
        }
    }

    /// Waits until this text was written; returns it and everything before it.
    pub(crate) fn until(&mut self, text: &str) -> String {
        let clock = Clock::system();
        let began = clock.monotonic();
        loop {
            let shown = String::from_utf8_lossy(&self.text).into_owned();
            if let Some(at) = shown.find(text) {
                let end = at + text.len();
                self.text = shown.as_bytes()[end..].to_vec();
                return shown[..end].to_owned();
            }
            // Output that is redrawn repeatedly never pauses.
            let is_time_left = clock.monotonic() - began < TEST_TIMEOUT;
            assert!(is_time_left, "{text:?} was not shown, but {shown:?}");
            match self.written.recv_timeout(TEST_TIMEOUT) {
                Ok(bytes) => self.take(&bytes),
                Err(why) => panic!("{text:?} was not shown ({why}), but {shown:?}"),
            }
        }
    }

    /// Waits until the screen satisfies `fits`; returns its lines.
    pub(crate) fn until_seen(&mut self, fits: impl Fn(&str) -> bool) -> String {
        let clock = Clock::system();
        let began = clock.monotonic();
        loop {
            let seen = self.seen();
            if fits(&seen) {
                return seen;
            }
            // Output that is redrawn repeatedly never pauses.
            assert!(
                clock.monotonic() - began < TEST_TIMEOUT,
                "not seen:\n{seen}"
            );
            match self.written.recv_timeout(TEST_TIMEOUT) {
                Ok(bytes) => self.take(&bytes),
                Err(why) => panic!("the screen never matched ({why}):\n{seen}"),
            }
        }
    }

    /// The lines that are on the screen now.
    pub(crate) fn seen(&self) -> String {
        self.screen.screen().contents()
    }

    /// The whole output, including control sequences.
    pub(crate) fn raw(&self) -> String {
        String::from_utf8_lossy(&self.raw).into_owned()
    }

    fn take(&mut self, bytes: &[u8]) {
        self.screen.process(bytes);
        self.raw.extend_from_slice(bytes);
        for text in self.strip.strip_next(bytes) {
            let text = text.iter().filter(|byte| **byte != b'\r');
            self.text.extend(text);
        }
    }

    pub(crate) fn types(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).unwrap();
    }

    /// Changes the width of the window, as a user would.
    pub(crate) fn resize(&mut self, columns: u16) {
        let (rows, _) = self.screen.screen().size();
        tcsetwinsize(&self.keys, size(columns, rows)).unwrap();
        self.screen.screen_mut().set_size(rows, columns);
    }

    /// Are echo and line mode on, as a shell expects them?
    pub(crate) fn is_as_shells_leave_it(&self) -> bool {
        let modes = tcgetattr(&self.keys).unwrap().local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
            && !self.screen.screen().alternate_screen()
            && !self.screen.screen().hide_cursor()
    }

    /// Sends SIGINT, as Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Sends the command a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end; returns the exit code and the output that no search has consumed.
    pub(crate) fn end(&mut self) -> (i32, String) {
        loop {
            match self.written.recv_timeout(TEST_TIMEOUT) {
                Ok(bytes) => self.take(&bytes),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(why) => panic!("it goes on ({why}):\n{}", self.seen()),
            }
        }
        let code = self.child.wait().unwrap().code().unwrap();
        let text = std::mem::take(&mut self.text);
        (code, String::from_utf8_lossy(&text).into_owned())
    }
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
