//! How `masthead serve` reaches etcd.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use masthead_store::EtcdSettings;

use super::values::duration;

/// What goes with `--store etcd`.
#[derive(Args)]
#[command(next_help_heading = "etcd")]
pub(super) struct EtcdArguments {
    /// Addresses of the members, with commas between them
    #[arg(
        long,
        env = "MASTHEAD_ETCD_ENDPOINTS",
        value_name = "URL,…",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:2379"
    )]
    etcd_endpoints: Vec<String>,
    /// What all keys begin with
    #[arg(long, env = "MASTHEAD_ETCD_PREFIX", value_name = "PREFIX", default_value = "masthead")]
    etcd_prefix: String,
    /// Authority that vouches for the members' certificates
    #[arg(long, env = "MASTHEAD_ETCD_CA", value_name = "FILE")]
    etcd_ca: Option<PathBuf>,
    /// Certificate to show to the members
    #[arg(long, env = "MASTHEAD_ETCD_CERT", value_name = "FILE", requires = "etcd_key")]
    etcd_cert: Option<PathBuf>,
    /// Key of that certificate
    #[arg(long, env = "MASTHEAD_ETCD_KEY", value_name = "FILE", requires = "etcd_cert")]
    etcd_key: Option<PathBuf>,
    /// User to sign in as; the password is read from the file of --etcd-password-file
    #[arg(long, env = "MASTHEAD_ETCD_USER", value_name = "NAME", requires = "etcd_password_file")]
    etcd_user: Option<String>,
    /// File with the password of that user; a line break at its end does not count
    #[arg(long, env = "MASTHEAD_ETCD_PASSWORD_FILE", value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,
    /// Time over which a stopping server ends its watches, so that their clients do not all come to
    /// the other servers at once; at most 5s
    #[arg(long, env = "MASTHEAD_HANDOVER", value_name = "TIME", value_parser = duration, default_value = "3s")]
    handover: Duration,
}

impl EtcdArguments {
    pub(super) fn handover(&self) -> Duration {
        self.handover
    }

    pub(super) fn settings(&self) -> anyhow::Result<EtcdSettings> {
        let mut settings = EtcdSettings::new(&self.etcd_endpoints).prefix(&self.etcd_prefix);
        if let Some(authority) = &self.etcd_ca {
            settings = settings.authority(read(authority)?);
        } else if self.etcd_endpoints.iter().any(|it| it.starts_with("https://")) {
            bail!("etcd is reached over https:// and nobody vouches for it: name --etcd-ca");
        }
        if let (Some(certificate), Some(key)) = (&self.etcd_cert, &self.etcd_key) {
            settings = settings.identity(read(certificate)?, read(key)?);
        }
        if let (Some(user), Some(file)) = (&self.etcd_user, &self.etcd_password_file) {
            let password = String::from_utf8(read(file)?)
                .with_context(|| format!("the password in {} is no text", file.display()))?;
            settings = settings.user(user, password.trim_end_matches(['\r', '\n']));
        }
        Ok(settings)
    }
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}
