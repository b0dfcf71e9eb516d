//! Who may connect without TLS, what a client of the other kind is told, and silent or old clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::json;

use super::*;
use crate::harness::run;

#[test]
fn a_client_of_the_other_kind_is_told_what_to_do() {
    run(async {
        let (place, print) = encrypted();
        let daemon = place.start().await;
        let plain = daemon.url().replacen("https", "http", 1);
        let (code, text) = run_of(remote(&place, &plain, &["status"]));
        assert_eq!(code, Some(9), "{text}");
        assert!(
            text.contains(&format!("with TLS: {}", daemon.url())),
            "{text}"
        );
        // A pin is a promise of encryption.
        let pin = print.to_string();
        let (code, text) = run_of(remote(&place, &plain, &["status", "--pin", &pin]));
        assert_eq!(code, Some(2), "{text}");

        let answer = http(&daemon, "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 426 "), "{answer}");
        assert!(answer.contains("begin the URL with https://"), "{answer}");
        let answer = http(&daemon, "nonsense\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert_eq!(daemon.stop().await, 0);

        let place = Place::new(Script::new());
        let daemon = place.start().await;
        let encrypted = daemon.url().replacen("http", "https", 1);
        let (code, text) = run_of(remote(&place, &encrypted, &["status", "--pin", &pin]));
        assert_eq!(code, Some(9), "{text}");
        assert!(text.contains("does not speak TLS"), "{text}");
        assert!(
            text.contains(&format!("without TLS: {}", daemon.url())),
            "{text}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

/// Sends `request` without TLS and returns the answer.
fn http(daemon: &Daemon, request: &str) -> String {
    let mut stream = open(daemon);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn open(daemon: &Daemon) -> TcpStream {
    let address = daemon.url().rsplit_once('/').unwrap().1;
    TcpStream::connect(address).unwrap()
}

#[test]
fn a_client_that_never_ends_its_handshake_is_closed_and_keeps_no_other_out() {
    run(async {
        let (place, _) = encrypted();
        let daemon = place.start().await;
        let old = daemon.client().await;
        // More than there are seats for clients without the token.
        let mut silent: Vec<TcpStream> = (0..200).map(|_| open(&daemon)).collect();
        for (index, stream) in silent.iter_mut().enumerate() {
            // Nothing, or the beginning of a handshake.
            if index % 2 == 0 {
                let _ = stream.write_all(&[22, 3, 1, 2, 0, 1]);
            }
        }
        daemon
            .client()
            .await
            .call("gateway.status", json!({}))
            .await;
        old.call("gateway.status", json!({})).await;
        for stream in &mut silent {
            // Closed, or reset because it sent something.
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
        }
        daemon
            .client()
            .await
            .call("gateway.status", json!({}))
            .await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_stop_does_not_wait_for_handshakes() {
    run(async {
        let (place, _) = encrypted();
        let daemon = place.start().await;
        let _silent: Vec<TcpStream> = (0..4).map(|_| open(&daemon)).collect();
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn versions_before_1_2_are_refused_and_openssl_speaks_with_the_gateway() {
    run(async {
        if Command::new("openssl").arg("version").output().is_err() {
            println!("skipped: openssl is not installed");
            return;
        }
        let (place, print) = encrypted();
        let daemon = place.start().await;
        let address = daemon.url().rsplit_once('/').unwrap().1.to_owned();
        let speak = |version: &str| {
            let mut command = Command::new("openssl");
            command
                .args(["s_client", "-connect", &address, version, "-quiet"])
                // Lets openssl offer the old versions at all.
                .args(["-cipher", "ALL:@SECLEVEL=0", "-verify_quiet"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut input = child.stdin.take().unwrap();
            // It fails if the handshake did.
            let _ = input
                .write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
            let output = child.wait_with_output().unwrap();
            drop(input);
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        for (version, is_accepted) in [("-tls1_1", false), ("-tls1_2", true), ("-tls1_3", true)] {
            let answer = speak(version);
            assert_eq!(
                answer.starts_with("HTTP/1.1 200 OK"),
                is_accepted,
                "{version}: {answer}"
            );
        }
        // What its own tool prints as fingerprint is taken as pin.
        let output = Command::new("openssl")
            .args(["x509", "-noout", "-fingerprint", "-sha256", "-in"])
            .arg(cert_of(&place))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text.parse::<Fingerprint>().unwrap(), print);
        let (code, text) = run_of(remote(
            &place,
            daemon.url(),
            &["status", "--pin", text.trim()],
        ));
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn an_address_that_others_can_reach_needs_tls_or_a_flag_that_is_reported() {
    run(async {
        let place = Place::new(Script::new()).with("gateway.listen", "\"0.0.0.0:0\"");
        let (code, text) = run_of(place.command(&["serve"]));
        assert_eq!(code, Some(78), "{text}");
        for part in [
            "gateway.tls_cert_file",
            "abide tls new",
            "gateway.allow_plain = true",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!place.state().join("abide.db").exists());
        // Nor can a running daemon be set to it by accident.
        let plain = Place::new(Script::new());
        let daemon = plain.start().await;
        let set = ["config", "set", "gateway.listen", "0.0.0.0:7777"];
        let (code, text) = run_of(plain.command(&set));
        assert_eq!(code, Some(78), "{text}");
        assert!(text.contains("needs TLS"), "{text}");
        assert_eq!(daemon.stop().await, 0);

        let place = place.with("gateway.allow_plain", "true");
        let daemon = place.start().await;
        assert!(
            daemon.url().starts_with("http://127.0.0.1:"),
            "{}",
            daemon.url()
        );
        assert!(place.log().contains("are not encrypted"), "{}", place.log());
        let status = daemon
            .client()
            .await
            .call("gateway.status", json!({}))
            .await;
        assert!(
            status["notices"].to_string().contains("are not encrypted"),
            "{status}"
        );
        assert_eq!(findings(&daemon, "listen.plain").await.len(), 1);
        assert_eq!(daemon.stop().await, 0);

        let mut place = place;
        place.unset("gateway.allow_plain");
        certify(&place, 90, now());
        let place = configured(place);
        let daemon = place.start().await;
        assert!(
            daemon.url().starts_with("https://127.0.0.1:"),
            "{}",
            daemon.url()
        );
        assert!(findings(&daemon, "listen.plain").await.is_empty());
        let found = findings(&daemon, "tls.certificate").await;
        assert_eq!(found[0]["status"], "ok", "{found:?}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_certificate_that_cannot_be_used_stops_the_start_with_its_file() {
    run(async {
        let (place, _) = encrypted();
        let key = std::fs::read_to_string(key_of(&place)).unwrap();
        put(&key_of(&place), &key, 0o640);
        let (code, text) = run_of(place.command(&["serve"]));
        assert_eq!(code, Some(78), "{text}");
        assert!(text.contains("tls_key.pem cannot be used"), "{text}");
        assert!(text.contains("Nothing was started"), "{text}");
        let mut place = place;
        place.unset("gateway.tls_cert_file");
        let (code, text) = run_of(place.command(&["serve"]));
        assert_eq!(code, Some(78), "{text}");
        assert!(text.contains("set gateway.tls_cert_file, too"), "{text}");
    });
}
