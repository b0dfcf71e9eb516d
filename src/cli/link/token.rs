//! Reads the daemon's token from its file. Used to open connections.

use std::path::Path;

use crate::cli::common::failure::{Failure, exit};
use crate::cli::output::print;
use crate::config::{self, SecretFileRule, Unusable};

/// Reads the token in `file`.
pub(crate) fn read_token(file: &Path) -> Result<String, Failure> {
    config::read_secret(file, SecretFileRule::Named)
        .inspect(|_| note_readable(file))
        .map_err(|why| {
            let message = format!("the token in {} cannot be used: {why}", file.display());
            Failure::new(exit::AUTH, "unauthorized", message).hint(match why {
                Unusable::Impossible(_) | Unusable::Foreign(_) => {
                    "use the daemon's own, the file token in its state folder: --token-file \
                     FILE; it must be one line, have mode 600 and belong to you"
                }
                Unusable::Missing | Unusable::Unreadable(_) => {
                    "run as the user who started the daemon, or use --token-file FILE"
                }
            })
        })
}

/// The token to present over a socket, where most calls need none: an unusable file only causes a
/// note.
pub(crate) fn token_for_socket(file: Option<&Path>) -> Option<String> {
    let file = file?;
    match config::read_secret(file, SecretFileRule::Named) {
        Ok(token) => {
            note_readable(file);
            Some(token)
        }
        Err(Unusable::Missing | Unusable::Unreadable(_)) => None,
        Err(why) => {
            print::note(&format!(
                "note: the token in {} is not used: {why}",
                file.display()
            ));
            None
        }
    }
}

/// Warns a user at the terminal if other users can read a secret.
fn note_readable(file: &Path) {
    if print::notes_are_watched() && config::is_readable_by_others(file) {
        let file = file.display();
        print::note(&format!(
            "note: other users can read {file}; fix it: chmod 600 {file}"
        ));
    }
}
