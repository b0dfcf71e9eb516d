//! A program of a run that holds connections open over the socket keeps no other client out.

use std::fs;

use serde_json::json;

use crate::harness::{eventually, run};
use crate::owners::{has_perl, place};

/// One program of a run sends requests whose bodies never arrive.
const STALLED: &str = r#"
use strict;
use IO::Socket::UNIX;
my ($socket) = @ARGV;
my @held;
for (1 .. 24) {
    my $stream = IO::Socket::UNIX->new(Peer => $socket) or last;
    print $stream "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        . "Content-Length: 10000000\r\n\r\n{";
    $stream->flush();
    push @held, $stream;
}
open(my $ready, '>', 'stalled') or die;
close($ready);
sleep(600);
"#;

#[test]
fn bodies_that_a_program_of_a_run_never_sends_keep_nobody_else_out() {
    if !has_perl() {
        return;
    }
    run(async {
        let place = place("perl stalled.pl \"$ABIDE_SOCKET\"");
        fs::write(place.work().join("stalled.pl"), STALLED).unwrap();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let held = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        eventually("the bodies that stay away", async || {
            place.work().join("stalled").exists().then_some(())
        })
        .await;
        let listed = place.command(&["ps"]).output().unwrap();
        assert!(listed.status.success(), "{listed:?}");
        let cancelled = place.command(&["cancel", &held.id]).output().unwrap();
        assert!(cancelled.status.success(), "{cancelled:?}");
        assert_eq!(client.ended(&held.id).await["state"], "cancelled");
        assert_eq!(daemon.stop().await, 0);
    });
}
