//! Which certificate a gateway must show: the one named with `--pin`, the one that the user has
//! accepted before, or one that an authority of this system has signed. Used to open connections.

use super::known::KnownGateways;
use crate::cli::common::ask;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::output::print;
use crate::client::tls::Trust;
use crate::client::{ClientError, GatewayUrl};
use crate::tls::Fingerprint;

/// Connects to `url` by `open`, with the check that applies to its certificate. The outer failure
/// comes before anything is sent to the gateway. A user at the terminal is asked about a
/// certificate that cannot be checked; an accepted one is remembered.
pub(crate) async fn connect<C>(
    url: &str,
    pin: Option<Fingerprint>,
    open: impl AsyncFn(Trust) -> Result<C, ClientError>,
) -> Result<Result<C, ClientError>, Failure> {
    let address = match GatewayUrl::parse(url) {
        Ok(address) if address.tls => address,
        // Without TLS there is no certificate, and a broken URL is for the client to report.
        _ => return Ok(open(Trust::System).await),
    };
    if let Some(pin) = pin {
        return Ok(open(Trust::Pinned(pin)).await);
    }
    let known = KnownGateways::of_user()?;
    let name = address.authority();
    if let Some(pin) = known.find(&name)? {
        let opened = open(Trust::Pinned(pin)).await;
        return match opened {
            Err(error @ ClientError::OtherCertificate { .. }) => {
                Err(changed(&error, &known, &name))
            }
            opened => Ok(opened),
        };
    }
    let error = match open(Trust::System).await {
        Err(error) => error,
        opened => return Ok(opened),
    };
    let ClientError::Untrusted {
        shown,
        why,
        may_be_pinned: true,
        ..
    } = &error
    else {
        return Ok(Err(error));
    };
    if !ask::can_ask() {
        return Err(refused(&error).hint(format!(
            "compare the fingerprint with the output of `abide tls show` on the gateway; if both \
             are the same: --pin {shown}"
        )));
    }
    print::note(&format!(
        "The certificate of {name} cannot be checked: {why}.\nIts SHA-256 fingerprint is\n  \
         {shown}\nCompare it with the output of `abide tls show` on the gateway."
    ));
    if !ask::agrees("Is it the same, and shall it be trusted from now on? (yes or no) ")? {
        return Err(Failure::new(
            exit::AUTH,
            "certificate",
            format!("the certificate of {name} was not accepted; nothing was sent"),
        ));
    }
    let opened = open(Trust::Pinned(*shown)).await;
    if opened.is_ok() {
        known.add(&name, *shown)?;
        print::note(&format!("remembered in {}", known.path().display()));
    }
    Ok(opened)
}

/// The failure for a certificate that is not accepted.
pub(crate) fn refused(error: &ClientError) -> Failure {
    Failure::new(exit::AUTH, "certificate", error.to_string())
}

fn changed(error: &ClientError, known: &KnownGateways, name: &str) -> Failure {
    refused(error).hint(format!(
        "another machine may answer in its place. If its operator has replaced the certificate \
         (`abide tls show` there prints the new fingerprint), remove the line of {name} from {}",
        known.path().display()
    ))
}
