//! `abide tls`: makes a certificate for the gateway, and shows the one in use. Works on files, with
//! or without a running daemon.

mod new;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;

use self::new::NewCertificate;
use super::serve;
use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::text::clean;
use crate::clock::Clock;
use crate::file_work::read_regular;
use crate::tls::CertificateFacts;
use crate::wire::config::GetConfig;

/// Maximum size of a certificate file in bytes.
const LIMIT: usize = 1 << 20;

/// Make and show the certificate of the gateway
///
/// With a certificate the daemon accepts only encrypted connections on its TCP address. Clients
/// accept it by its SHA-256 fingerprint, or because an authority of their system has signed it.
#[derive(Debug, Args)]
pub(crate) struct TlsArgs {
    #[command(subcommand)]
    command: TlsCommand,
}

#[derive(Debug, Subcommand)]
enum TlsCommand {
    New(NewCertificate),
    Show(ShowCertificate),
}

impl TlsArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        match self.command {
            TlsCommand::New(command) => command.run(common).await,
            TlsCommand::Show(command) => command.run(common).await,
        }
    }
}

/// Show names, validity and fingerprint of the configured certificate
#[derive(Debug, Args)]
#[command(after_help = "abide tls show
abide tls show --file ./tls_cert.pem")]
struct ShowCertificate {
    /// The certificate [default: the configured one]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl ShowCertificate {
    async fn run(self, common: &Common) -> Result<u8, Failure> {
        let file = match self.file {
            Some(file) => file,
            None => configured(common).await?,
        };
        let facts = read(&file)?;
        show(&file, None, &facts, common.json)?;
        if let Some(why) = facts.invalidity(Clock::system().now()) {
            print::note(&format!("note: clients refuse it: {why}"));
        }
        Ok(0)
    }
}

/// The file of the certificate that the running daemon uses, else of the configured one.
async fn configured(common: &Common) -> Result<PathBuf, Failure> {
    const KEY: &str = "gateway.tls_cert_file";
    common.place.refuse_address("tls show", "--file")?;
    let of_daemon = match DaemonLink::open(&common.place).await {
        Ok(link) => {
            let settings = link.ask(&GetConfig {}).await?.settings;
            let setting = settings.into_iter().find(|setting| setting.key == KEY);
            setting.and_then(|setting| setting.value.as_str().map(PathBuf::from))
        }
        Err(failure) if failure.code == exit::NO_DAEMON => {
            serve::settings(None)?.config.tls_cert_file
        }
        Err(failure) => return Err(failure),
    };
    of_daemon.ok_or_else(|| {
        Failure::new(
            exit::NOT_FOUND,
            "not_found",
            format!("no certificate is configured ({KEY})"),
        )
        .hint("make one: abide tls new")
    })
}

/// The first certificate in a PEM file.
fn read(file: &Path) -> Result<CertificateFacts, Failure> {
    let unusable = |why: String| {
        let file = file.display();
        Failure::new(
            exit::FAILED,
            "certificate",
            format!("{file} cannot be read: {why}"),
        )
    };
    let bytes = read_regular(file, LIMIT).map_err(|fault| unusable(fault.to_string()))?;
    let der = CertificateDer::from_pem_slice(&bytes);
    let der = der.map_err(|_| unusable("it has no certificate in PEM form".to_owned()))?;
    CertificateFacts::read(&der).map_err(|fault| unusable(fault.to_string()))
}

/// Prints the facts that a person compares.
fn show(
    file: &Path,
    key: Option<&Path>,
    facts: &CertificateFacts,
    as_json: bool,
) -> Result<(), Failure> {
    if as_json {
        return print::object(&json!({
            "certificate": file,
            "key": key,
            "names": facts.names,
            "notBefore": facts.not_before,
            "notAfter": facts.not_after,
            "fingerprint": facts.fingerprint,
        }));
    }
    let mut lines = vec![format!("certificate  {}", file.display())];
    if let Some(key) = key {
        lines.push(format!("key          {}", key.display()));
    }
    lines.extend([
        format!("names        {}", facts.names.join(", ")),
        format!("valid until  {}", facts.not_after),
        format!("SHA-256      {}", facts.fingerprint),
    ]);
    print::answer(&clean(&lines.join("\n")))
}
