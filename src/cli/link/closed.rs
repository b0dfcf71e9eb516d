//! The failure for a socket that this user may not open: it names the socket and the owner.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::cli::common::failure::Failure;

/// The failure, with this exit code.
pub(super) fn failure(socket: &Path, code: u8) -> Failure {
    let own = rustix::process::geteuid().as_raw();
    let message = format!(
        "no permission to connect to the socket {}{}, and you are user {own}. Nothing was sent; its \
         address was not tried with the token instead",
        socket.display(),
        owner(socket)
    );
    Failure::new(code, "not_permitted", message)
        .hint("run as that user, or as root")
        .hint("or use the daemon's address with a token of your own: --url URL --token-file FILE")
}

/// Who may open the socket, as a part of the sentence.
fn owner(socket: &Path) -> String {
    for path in socket.ancestors() {
        let found = match fs::metadata(path) {
            Ok(found) => found,
            // A folder above it is closed.
            Err(fault) if fault.kind() == ErrorKind::PermissionDenied => continue,
            Err(_) => return String::new(),
        };
        let of = format!("user {} (mode {:o})", found.uid(), found.mode() & 0o777);
        return match path == socket {
            true => format!(", which belongs to {of}"),
            false => format!(": the folder {} belongs to {of}", path.display()),
        };
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_socket_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("a.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let own = rustix::process::geteuid().as_raw();
        let failure = failure(&socket, 9);
        let named = format!("which belongs to user {own} (mode ");
        assert!(failure.message.contains(&named), "{failure}");
        assert!(
            failure.message.contains(socket.to_str().unwrap()),
            "{failure}"
        );
    }
}
