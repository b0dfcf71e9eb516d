//! Starts a daemon whose sockets a service manager holds (socket activation): the connection is the
//! request. Used where no daemon was found.

use std::time::Duration;

use super::discover::Where;
use super::token::token_for_socket;
use crate::client::Client;
use crate::wire::gateway::{GetStatus, Status};
use crate::wire::method::Method as _;

/// Polling interval of a daemon that restores its runs.
const LOOK: Duration = Duration::from_millis(20);
/// How often a daemon that is ready is looked for in its endpoint file; none is written on a full disk.
const LOOKS: u32 = 250;

/// True once a daemon that a service manager starts at the first connection is ready and found by
/// `place`. False if there is no such socket, or if the daemon did not start.
pub(crate) async fn start(place: &Where) -> bool {
    let Some(socket) = place.activating_socket() else {
        return false;
    };
    let token = token_for_socket(Some(&socket.with_file_name("token")));
    // Waits until the daemon accepts it. A socket that a killed daemon left behind refuses it.
    let Ok(client) = Client::connect_socket_with(&socket, token.as_deref()).await else {
        return false;
    };
    let mut left = LOOKS;
    while left > 0 {
        let status: Result<Status, _> = client.call(GetStatus::ROW.name, &GetStatus {}).await;
        match status {
            Ok(status) if status.phase == "starting" => {}
            Ok(_) if place.target().is_ok() => return true,
            Ok(_) => left -= 1,
            Err(_) => return false,
        }
        tokio::time::sleep(LOOK).await;
    }
    false
}
