//! `abide tls new`: makes a self-signed certificate and its key.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::Args;

use super::show;
use crate::cli::commands::config::ConfigWriter;
use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::output::print;
use crate::clock::Clock;
use crate::config::{SettingEdit, SettingsSource};
use crate::tls::{CertificateFacts, is_name, self_signed};

const CERTIFICATE: &str = "tls_cert.pem";
const KEY: &str = "tls_key.pem";
/// Names that every certificate gets, for clients on the same machine.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Make a self-signed certificate and its key
///
/// Clients compare its SHA-256 fingerprint, which is printed. A certificate that an authority has
/// signed needs no fingerprint: set its files as gateway.tls_cert_file and gateway.tls_key_file.
#[derive(Debug, Args)]
#[command(after_help = "abide tls new --name build.example.org --use
abide tls new --days 90 --out ./tls")]
pub(super) struct NewCertificate {
    /// Host name or address that clients use; may be repeated [default: the name of this machine]
    #[arg(long, value_name = "HOST")]
    name: Vec<String>,

    /// Days of validity
    #[arg(long, value_name = "N", default_value_t = 825,
          value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,

    /// Folder for both files [default: the one of the settings]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,

    /// Replace an existing certificate and key; a running daemon takes the new ones over
    #[arg(long)]
    replace: bool,

    /// Write both paths to the settings
    #[arg(long = "use")]
    set: bool,
}

impl NewCertificate {
    pub(super) async fn run(self, common: &Common) -> Result<u8, Failure> {
        // Before anything is written: a daemon that cannot be asked, or unusable settings.
        let writer = match self.set {
            true => Some(ConfigWriter::open(common, "tls new --use", None).await?),
            false => None,
        };
        let folder = self.folder()?;
        let (certificate, key) = (folder.join(CERTIFICATE), folder.join(KEY));
        let existing = [&certificate, &key].into_iter().find(|path| path.exists());
        if let Some(path) = existing.filter(|_| !self.replace) {
            let message = format!("{} exists; nothing was changed", path.display());
            return Err(Failure::new(exit::REFUSED, "exists", message).hint(
                "replace both: --replace (clients that have pinned the old one must pin the new \
                 one); or choose another folder: --out FOLDER",
            ));
        }
        let made = self_signed(&self.names(), self.days, Clock::system().now());
        let made = made.map_err(|why| Failure::usage(format!("{why}; nothing was changed")))?;
        let facts = CertificateFacts::read(&made.der)
            .map_err(|fault| Failure::local("the new certificate", fault))?;
        write_pair(&folder, &made.certificate_pem(), &made.key_pem())
            .map_err(|error| Failure::local(folder.display(), error))?;
        show(&certificate, Some(&key), &facts, common.json)?;
        match writer {
            Some(writer) => set(writer, &certificate, &key).await?,
            None => print::note(&format!(
                "to use it, add to the settings and restart the daemon:\n  [gateway]\n  \
                 tls_cert_file = {:?}\n  tls_key_file = {:?}\nor run this again with --use \
                 --replace",
                certificate.display(),
                key.display()
            )),
        }
        Ok(0)
    }

    /// The folder for both files, absolute.
    fn folder(&self) -> Result<PathBuf, Failure> {
        if let Some(folder) = &self.out {
            return std::path::absolute(folder)
                .map_err(|error| Failure::local(folder.display(), error));
        }
        let settings = SettingsSource::find(None).file;
        let folder = settings.as_deref().and_then(Path::parent);
        folder.map(Path::to_owned).ok_or_else(|| {
            Failure::usage("the folder of the settings is unknown").hint("name one: --out FOLDER")
        })
    }

    fn names(&self) -> Vec<String> {
        let mut names = self.name.clone();
        if names.is_empty() {
            let system = rustix::system::uname();
            let host = system.nodename().to_string_lossy();
            names.extend(is_name(&host).then(|| host.into_owned()));
        }
        for name in LOCAL {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names
    }
}

/// Both files are there once this returns. They are written beside the old ones first, so that a
/// full disk leaves those as they are.
fn write_pair(folder: &Path, certificate: &str, key: &str) -> std::io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let files = [(KEY, key, 0o600), (CERTIFICATE, certificate, 0o644)];
    let aside = |name: &str| folder.join(format!(".{name}.{}", std::process::id()));
    for (name, text, mode) in files {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(aside(name))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
    }
    for (name, ..) in files {
        fs::rename(aside(name), folder.join(name))?;
    }
    Ok(())
}

/// The settings name both files once this returns, and a running daemon has read them.
async fn set(mut writer: ConfigWriter, certificate: &Path, key: &Path) -> Result<(), Failure> {
    let text = |path: &Path| SettingEdit::text(&path.display().to_string());
    let edits = vec![
        (vec!["gateway", "tls_cert_file"], text(certificate)),
        (vec!["gateway", "tls_key_file"], text(key)),
    ];
    let (_, changed) = writer.write(vec![edits])?;
    let path = writer.path();
    if !changed {
        print::note(&format!("{path} names both already"));
        return Ok(());
    }
    let reloaded = writer.reload().await?;
    print::note(&format!("both are set in {path}"));
    if reloaded.is_some() {
        print::note(
            "the daemon encrypts from its next start on: abide stop && abide serve --detach",
        );
    }
    Ok(())
}
