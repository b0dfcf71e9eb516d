//! Which certificates clients accept, and how the daemon's changes while it runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use abide::client::tls::Trust;
use abide::client::{Client, ClientError};
use abide::tls::Fingerprint;
use serde_json::json;

use super::*;
use crate::harness::{Terminal, run};

#[test]
fn a_pinned_gateway_is_used_and_another_certificate_is_refused_with_both() {
    run(async {
        let (place, print) = encrypted();
        let daemon = place.start().await;
        let url = daemon.url().to_owned();
        assert!(url.starts_with("https://127.0.0.1:"), "{url}");
        let pin = print.to_string();
        let pinned = |pin: &str| remote(&place, &url, &["status", "--pin", pin]);
        assert_eq!(run_of(pinned(&pin)).0, Some(0));

        let other = Fingerprint::of(b"other").to_string();
        let (code, text) = run_of(pinned(&other));
        assert_eq!(code, Some(11), "{text}");
        for part in [&*pin, &other, "Nothing was sent"] {
            assert!(text.contains(part), "{text}");
        }
        let (code, text) = run_of(pinned("abc"));
        assert_eq!(code, Some(2), "{text}");

        // Without a pin and without a terminal nothing is asked, and the way on is named.
        let (code, text) = run_of(remote(&place, &url, &["status"]));
        assert_eq!(code, Some(11), "{text}");
        assert!(
            text.contains("no authority that this system trusts"),
            "{text}"
        );
        assert!(text.contains(&format!("--pin {pin}")), "{text}");
        let mut by_variable = remote(&place, &url, &["status"]);
        by_variable.env("ABIDE_PIN", &pin);
        assert_eq!(run_of(by_variable).0, Some(0));

        // On the same machine the certificate is known.
        let mut local = place.command(&["status", "--token-file"]);
        local.arg(place.state().join("token"));
        let (code, text) = run_of(local);
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_certificate_is_accepted_once_at_a_terminal_and_a_change_is_refused() {
    run(async {
        let (place, print) = encrypted();
        let daemon = place.start().await;
        let url = daemon.url().to_owned();
        let known = place.path().join(".config/abide/known_gateways");

        let mut terminal = Terminal::start(remote(&place, &url, &["status"]));
        let asked = terminal.until("(yes or no)");
        assert!(asked.contains(&print.to_string()), "{asked}");
        terminal.types("no\n");
        terminal.until("was not accepted");
        assert_eq!(terminal.end().0, 11);
        assert!(!known.exists());

        let mut terminal = Terminal::start(remote(&place, &url, &["status"]));
        terminal.until("(yes or no)");
        terminal.types("yes\n");
        terminal.until("remembered in");
        assert_eq!(terminal.end().0, 0);
        let mode = fs::metadata(&known).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // From now on the user is not asked.
        assert_eq!(run_of(remote(&place, &url, &["status"])).0, Some(0));

        let new = certify(&place, 90, now());
        in_force(&place, new).await;
        let (code, text) = run_of(remote(&place, &url, &["status"]));
        assert_eq!(code, Some(11), "{text}");
        for part in [
            print.to_string(),
            new.to_string(),
            known.display().to_string(),
        ] {
            assert!(text.contains(&part), "{text}");
        }
        // Also at a terminal: a change is never accepted by a quick answer.
        let mut terminal = Terminal::start(remote(&place, &url, &["status"]));
        terminal.until("is not the pinned one");
        assert_eq!(terminal.end().0, 11);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_certificate_that_an_authority_of_the_system_has_signed_needs_no_pin() {
    run(async {
        let place = Place::new(Script::new());
        let made = self_signed(&["localhost".to_owned()], 90, now()).unwrap();
        put(&key_of(&place), &made.key_pem(), 0o600);
        put(&cert_of(&place), &made.certificate_pem(), 0o644);
        let place = configured(place);
        let daemon = place.start().await;
        let port = daemon.url().rsplit_once(':').unwrap().1.to_owned();
        let by_system = |url: &str| {
            let mut command = remote(&place, url, &["status"]);
            command.env("SSL_CERT_FILE", cert_of(&place));
            run_of(command)
        };
        let (code, text) = by_system(&format!("https://localhost:{port}"));
        assert_eq!(code, Some(0), "{text}");
        let (code, text) = by_system(daemon.url());
        assert_eq!(code, Some(11), "{text}");
        assert!(text.contains("it is not for the host 127.0.0.1"), "{text}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn an_expired_certificate_is_refused_and_reported() {
    run(async {
        let place = Place::new(Script::new());
        let long_ago = Timestamp(1_700_000_000_000);
        let print = certify(&place, 1, long_ago);
        let place = configured(place);
        let mut command = place.command(&["serve"]);
        command.env("RUST_LOG", "warn");
        let daemon = place.start_command(command).await.unwrap();
        assert!(
            place.log().contains("it expired at 2023-11-15"),
            "{}",
            place.log()
        );
        let pin = print.to_string();
        let (code, text) = run_of(remote(&place, daemon.url(), &["status", "--pin", &pin]));
        assert_eq!(code, Some(11), "{text}");
        assert!(text.contains("it expired at 2023-11-15"), "{text}");
        let output = place.command(&["doctor"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            text.contains("clients refuse the TLS certificate"),
            "{text}"
        );

        // A new pair is taken over without a restart.
        let new = certify(&place, 10, now());
        in_force(&place, new).await;
        let pin = new.to_string();
        let (code, text) = run_of(remote(&place, daemon.url(), &["status", "--pin", &pin]));
        assert_eq!(code, Some(0), "{text}");
        let output = place.command(&["doctor"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("expires in 9 days"), "{text}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_new_certificate_is_taken_over_under_open_connections_and_a_broken_one_is_not() {
    run(async {
        let (place, first) = encrypted();
        let daemon = place.start().await;
        let old = daemon.client().await;
        let connect = async |pin| {
            let token = Some(daemon.token());
            Client::connect_trusting(daemon.url(), Trust::Pinned(pin), token).await
        };
        let second = certify(&place, 90, now());
        in_force(&place, second).await;
        // The open connection goes on, new ones get the new certificate.
        old.call("gateway.status", json!({})).await;
        connect(second).await.unwrap();
        let refused = connect(first).await.unwrap_err();
        assert!(
            matches!(refused, ClientError::OtherCertificate { .. }),
            "{refused}"
        );

        for (text, why) in [
            ("", "no certificate"),
            ("-----BEGIN CERTIFICATE-----\nxyz\n", "PEM"),
        ] {
            put(&cert_of(&place), text, 0o644);
            let (code, said) = run_of(place.command(&["config", "reload"]));
            assert_eq!(code, Some(0), "{said}");
            assert!(said.contains("was not replaced"), "{said}");
            assert!(said.contains(why), "{said}");
            connect(second).await.unwrap();
        }
        // The key of another certificate, and one that others may read.
        let third = certify(&place, 90, now());
        in_force(&place, third).await;
        let key = fs::read_to_string(key_of(&place)).unwrap();
        put(&key_of(&place), &key, 0o644);
        let (_, said) = run_of(place.command(&["config", "reload"]));
        assert!(said.contains("chmod 600"), "{said}");
        connect(third).await.unwrap();
        let local = crate::harness::Link::local(&place.state().join("abide.sock")).await;
        let found = local.unwrap().call("gateway.doctor", json!({})).await;
        assert!(found.to_string().contains("was not replaced"), "{found}");
        let status = old.call("gateway.status", json!({})).await;
        assert!(
            status["notices"].to_string().contains("was not replaced"),
            "{status}"
        );
        assert!(place.log().contains("was not replaced"), "{}", place.log());

        // Corrected, it is used again without another request.
        put(&key_of(&place), &key, 0o600);
        eventually("no more problem", || async {
            let status = old.call("gateway.status", json!({})).await;
            (!status["notices"].to_string().contains("was not replaced")).then_some(())
        })
        .await;
        assert_eq!(daemon.stop().await, 0);
    });
}
