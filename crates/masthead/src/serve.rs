//! `masthead serve`.

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args, ValueEnum};
use masthead_cache::HistoryLimits;
use masthead_server::limits::COMPRESSED_BYTES_MIN;
use masthead_server::{
    Config, Credentials, Limits, MASTERS, Security, Server, Tokens, Trust, User, tls_from_files,
    write_secret,
};
use masthead_store::{EmbeddedStore, EtcdStore, MemoryStore, Settings, Store};
use tracing_subscriber::EnvFilter;

mod advertised;
mod announce;
mod etcd;
mod signals;
pub(crate) mod values;

use advertised::Advertised;
use announce::Announcement;
use etcd::EtcdArguments;
use signals::StopSignals;
use values::{bytes, duration};

/// What `masthead serve` takes.
#[derive(Args)]
#[command(after_help = "Examples:
  masthead serve                                    embedded store, TLS on loopback
  masthead serve --store memory --listen 127.0.0.1:0 --write-kubeconfig kc
                                                    a throw-away server on a free port, for tests
  masthead serve --data-dir /var/lib/masthead --listen 10.0.0.5:6443 \\
      --tls-cert tls.crt --tls-key tls.key --client-ca ca.crt --token-file tokens.csv
  masthead serve --listen 0.0.0.0:7443 --advertise-address masthead.example.com
                                                    for clients on other machines
  masthead serve --store etcd --etcd-endpoints http://127.0.0.1:2379
                                                    objects in etcd: any number of servers may share it
  masthead serve --config masthead.yaml             the same settings from a file

Every flag can also be given as MASTHEAD_<NAME> in the environment or as <name> in the file of
--config; flags count more than the environment, and the environment more than the file.")]
pub(crate) struct ServeArguments {
    /// Where objects are kept
    #[arg(long, env = "MASTHEAD_STORE", value_enum, default_value_t = StoreKind::Embedded)]
    store: StoreKind,
    /// Directory of the store and of the server's own credentials. If it is absent, it is made for its
    /// user only
    /// [default: masthead in `XDG_DATA_HOME` or `~/.local/share`]
    #[arg(long, env = "MASTHEAD_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Address to listen on; port 0 takes a free one
    #[arg(long, env = "MASTHEAD_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:7443")]
    listen: SocketAddr,
    /// Where to write the administrator's kubeconfig [default: admin.kubeconfig in the data directory]
    #[arg(long, env = "MASTHEAD_WRITE_KUBECONFIG", value_name = "PATH")]
    write_kubeconfig: Option<PathBuf>,
    /// More bearer tokens, one a line: token,user,uid,"group,group"
    #[arg(long, env = "MASTHEAD_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Authority whose client certificates are let in, besides the server's own
    #[arg(long, env = "MASTHEAD_CLIENT_CA", value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Certificate to serve with instead of one of the server's own authority
    #[arg(long, env = "MASTHEAD_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Key of that certificate
    #[arg(long, env = "MASTHEAD_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authority of that certificate, for the kubeconfig [default: the certificate itself, which kubectl
    /// and other clients in Go accept]
    #[arg(long, env = "MASTHEAD_TLS_CA", value_name = "FILE", requires = "tls_cert")]
    tls_ca: Option<PathBuf>,
    /// More names and addresses that the server's own certificate is good for
    #[arg(
        long,
        env = "MASTHEAD_TLS_SAN",
        value_name = "NAME",
        value_delimiter = ',',
        conflicts_with = "tls_cert"
    )]
    tls_san: Vec<String>,
    /// Name or address, with a port if it differs, under which clients reach the server; it stands in
    /// the kubeconfig and in the server's own certificate [default: the address it listens on]
    #[arg(long, env = "MASTHEAD_ADVERTISE_ADDRESS", value_name = "HOST[:PORT]")]
    advertise_address: Option<Advertised>,
    /// Serve plain HTTP; only on loopback. Tokens are asked for all the same
    #[arg(long, env = "MASTHEAD_INSECURE_HTTP", action = ArgAction::Set, num_args = 0..=1,
        default_value = "false", default_missing_value = "true", value_parser = BoolishValueParser::new())]
    insecure_http: bool,
    /// A file with these settings, as YAML
    #[arg(long, env = "MASTHEAD_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// What is logged to standard error: error, warn, info, debug, or a filter as in `RUST_LOG`
    #[arg(long, env = "MASTHEAD_LOG", value_name = "FILTER", default_value = "warn")]
    log: String,
    /// How it is logged
    #[arg(long, env = "MASTHEAD_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// History that watches may resume from: how old
    #[arg(long, env = "MASTHEAD_KEEP_AGE", value_parser = duration, default_value = "15m",
        value_name = "TIME", help_heading = "History")]
    keep_age: Duration,
    /// History that watches may resume from: how large, for each resource and on disk
    #[arg(long, env = "MASTHEAD_KEEP_BYTES", value_parser = bytes, default_value = "256MiB",
        value_name = "BYTES", help_heading = "History")]
    keep_bytes: usize,
    /// Hold the bodies of objects compressed: a fraction of the memory, for more work at each read
    #[arg(long, env = "MASTHEAD_COMPRESS_BODIES", action = ArgAction::Set, num_args = 0..=1,
        default_value = "false", default_missing_value = "true", value_parser = BoolishValueParser::new())]
    compress_bodies: bool,
    #[command(flatten)]
    etcd: EtcdArguments,
    #[command(flatten)]
    limits: LimitArguments,
}

/// The limits, with the defaults of the server.
#[derive(Args)]
#[command(next_help_heading = "Limits")]
struct LimitArguments {
    /// Open connections
    #[arg(long, env = "MASTHEAD_MAX_CONNECTIONS", value_name = "N", default_value_t = Limits::default().connections)]
    max_connections: usize,
    /// Open watches
    #[arg(long, env = "MASTHEAD_MAX_WATCHES", value_name = "N", default_value_t = Limits::default().watches)]
    max_watches: usize,
    /// Open watches of one user
    #[arg(long, env = "MASTHEAD_MAX_WATCHES_PER_USER", value_name = "N", default_value_t = Limits::default().watches_per_user)]
    max_watches_per_user: usize,
    /// Open watches on one connection
    #[arg(long, env = "MASTHEAD_MAX_WATCHES_PER_CONNECTION", value_name = "N", default_value_t = Limits::default().watches_per_connection)]
    max_watches_per_connection: usize,
    /// Reads being answered at once, watches aside
    #[arg(long, env = "MASTHEAD_MAX_READS_IN_FLIGHT", value_name = "N", default_value_t = Limits::default().reads_in_flight)]
    max_reads_in_flight: usize,
    /// Writes being answered at once
    #[arg(long, env = "MASTHEAD_MAX_WRITES_IN_FLIGHT", value_name = "N", default_value_t = Limits::default().writes_in_flight)]
    max_writes_in_flight: usize,
    /// Lists and initial events being sent at once
    #[arg(long, env = "MASTHEAD_MAX_RESPONSE_BYTES_IN_FLIGHT", value_name = "BYTES", value_parser = bytes, default_value = "1GiB")]
    max_response_bytes_in_flight: usize,
    /// Bodies of requests being received and worked on at once
    #[arg(long, env = "MASTHEAD_MAX_REQUEST_BYTES_IN_FLIGHT", value_name = "BYTES", value_parser = bytes, default_value = "256MiB")]
    max_request_bytes_in_flight: usize,
    /// Compressed lists that are kept for the next
    #[arg(long, env = "MASTHEAD_MAX_ZIPPED_BYTES", value_name = "BYTES", value_parser = bytes, default_value = "128MiB")]
    max_zipped_bytes: usize,
    /// Long selectors of open watches
    #[arg(long, env = "MASTHEAD_MAX_SELECTOR_BYTES", value_name = "BYTES", value_parser = bytes, default_value = "16MiB")]
    max_selector_bytes: usize,
    /// Largest body of a request
    #[arg(long, env = "MASTHEAD_MAX_BODY_BYTES", value_name = "BYTES", value_parser = bytes, default_value = "3MiB")]
    max_body_bytes: usize,
    /// Largest head of a request
    #[arg(long, env = "MASTHEAD_MAX_HEADER_BYTES", value_name = "BYTES", value_parser = bytes, default_value = "64KiB")]
    max_header_bytes: usize,
    /// Longest path and query of a request
    #[arg(long, env = "MASTHEAD_MAX_URI_BYTES", value_name = "BYTES", value_parser = bytes, default_value = "60KiB")]
    max_uri_bytes: usize,
    /// Streams of one HTTP/2 connection
    #[arg(long, env = "MASTHEAD_MAX_STREAMS_PER_CONNECTION", value_name = "N", default_value_t = Limits::default().streams_per_connection)]
    max_streams_per_connection: u32,
    /// How long a TLS handshake may take
    #[arg(long, env = "MASTHEAD_HANDSHAKE_TIMEOUT", value_name = "TIME", value_parser = duration, default_value = "10s")]
    handshake_timeout: Duration,
    /// How long the head of a request may take
    #[arg(long, env = "MASTHEAD_HEADER_TIMEOUT", value_name = "TIME", value_parser = duration, default_value = "15s")]
    header_timeout: Duration,
    /// How long an HTTP/2 connection without a request is kept, up to twice this
    #[arg(long, env = "MASTHEAD_IDLE_TIMEOUT", value_name = "TIME", value_parser = duration, default_value = "90s")]
    idle_timeout: Duration,
    /// How long a request may take, watches and the sending of lists aside
    #[arg(long, env = "MASTHEAD_REQUEST_TIMEOUT", value_name = "TIME", value_parser = duration, default_value = "60s")]
    request_timeout: Duration,
    /// How long events stay after they were last written
    #[arg(long, env = "MASTHEAD_EVENT_TTL", value_name = "TIME", value_parser = duration, default_value = "1h")]
    event_ttl: Duration,
    /// An answer whose bytes do not move for this long is reset
    #[arg(long, env = "MASTHEAD_STALL_TIMEOUT", value_name = "TIME", value_parser = duration, default_value = "30s")]
    stall_timeout: Duration,
}

impl ServeArguments {
    /// The names and addresses that the server's own certificate is good for, besides loopback.
    fn certificate_names(&self) -> Vec<String> {
        let listen = Some(self.listen.ip()).filter(|address| !address.is_unspecified());
        let advertised = self.advertise_address.as_ref().map(|advertised| advertised.host.clone());
        let listen = listen.map(|address| address.to_string());
        listen.into_iter().chain(advertised).chain(self.tls_san.iter().cloned()).collect()
    }
}

impl LimitArguments {
    fn limits(&self) -> Limits {
        Limits {
            connections: self.max_connections,
            watches: self.max_watches,
            watches_per_user: self.max_watches_per_user,
            watches_per_connection: self.max_watches_per_connection,
            reads_in_flight: self.max_reads_in_flight,
            writes_in_flight: self.max_writes_in_flight,
            response_bytes_in_flight: self.max_response_bytes_in_flight,
            request_bytes_in_flight: self.max_request_bytes_in_flight,
            zipped_bytes: self.max_zipped_bytes,
            selector_bytes: self.max_selector_bytes,
            body_bytes: self.max_body_bytes,
            header_bytes: self.max_header_bytes,
            uri_bytes: self.max_uri_bytes,
            handshake_timeout: self.handshake_timeout,
            header_timeout: self.header_timeout,
            idle_timeout: self.idle_timeout,
            request_timeout: self.request_timeout,
            stall_timeout: self.stall_timeout,
            streams_per_connection: self.max_streams_per_connection,
            handover: Duration::ZERO,
            event_ttl: self.event_ttl,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StoreKind {
    /// On disk: survives everything but the disk
    Embedded,
    /// In memory: gone when the server stops
    Memory,
    /// In an etcd cluster, which several servers can share
    Etcd,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// Runs until it is told to stop.
pub(crate) fn run(arguments: &ServeArguments) -> anyhow::Result<()> {
    let began = Instant::now();
    start_logging(arguments)?;
    // Each watch may be a connection; what the system does not allow is met by the accept loop.
    let files = rlimit::increase_nofile_limit(u64::MAX);
    tracing::debug!(?files, "open file limit");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(arguments, began))
}

fn start_logging(arguments: &ServeArguments) -> anyhow::Result<()> {
    use std::io::IsTerminal;
    let filter = EnvFilter::try_new(&arguments.log)
        .with_context(|| format!("--log {:?} is no filter; try info or debug", arguments.log))?;
    let logging = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match arguments.log_format {
        LogFormat::Text => logging.init(),
        LogFormat::Json => logging.json().init(),
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "what the user types next")]
async fn serve(arguments: &ServeArguments, began: Instant) -> anyhow::Result<()> {
    let directory = data_directory(arguments.data_dir.as_deref())?;
    make_private(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let own = directory.join("credentials");
    let credentials = Credentials::load_or_create(&own, &arguments.certificate_names())?;
    let security = match (&arguments.tls_cert, &arguments.tls_key) {
        _ if arguments.insecure_http => Security::InsecureHttp,
        (Some(certificate), Some(key)) => {
            Security::Tls(tls_from_files(certificate, key, arguments.client_ca.as_deref())?)
        }
        _ => Security::Tls(credentials.tls(arguments.client_ca.as_deref())?),
    };
    let mut tokens = Tokens::default();
    let admin = User { name: "masthead-admin".to_owned(), groups: vec![MASTERS.to_owned()] };
    tokens.add(&credentials.admin_token, admin);
    if let Some(file) = &arguments.token_file {
        tokens.read(file)?;
    }
    let history = HistoryLimits {
        age: arguments.keep_age,
        bytes: arguments.keep_bytes,
        ..HistoryLimits::default()
    };
    let mut limits = arguments.limits.limits();
    if arguments.store == StoreKind::Etcd {
        limits.handover = arguments.etcd.handover();
    }
    let store = open_store(arguments, &directory).await?;
    let listen = arguments.listen;
    let compress_bodies = arguments.compress_bodies.then_some(COMPRESSED_BYTES_MIN);
    let config = Config { listen, security, tokens, limits, history, compress_bodies };
    let mut stop = StopSignals::new()?;
    let server = Server::start(config, store).await?;
    let advertised = match &arguments.advertise_address {
        Some(advertised) => advertised.clone(),
        None => Advertised::from(server.address()),
    };
    let trust = match &arguments.tls_cert {
        _ if arguments.insecure_http => Trust::default(),
        Some(file) => Trust::of_files(file, arguments.tls_ca.as_deref(), &advertised.host)?,
        None => credentials.trust(),
    };
    let scheme = if arguments.insecure_http { "http" } else { "https" };
    let url = format!("{scheme}://{}", advertised.authority(server.address().port()));
    let kubeconfig = arguments.write_kubeconfig.clone();
    let kubeconfig = kubeconfig.unwrap_or_else(|| directory.join("admin.kubeconfig"));
    write_secret(&kubeconfig, &credentials.kubeconfig(&url, &trust))?;
    let stopped = tokio::select! {
        () = server.ready() => false,
        () = stop.recv() => true,
    };
    if !stopped {
        let is_for_this_machine =
            listen.ip().is_unspecified() && arguments.advertise_address.is_none();
        let announcement = Announcement {
            url: &url,
            kubeconfig: &kubeconfig,
            token: &own.join("admin.token"),
            is_plain: arguments.insecure_http,
            is_for_this_machine,
            took: began.elapsed(),
        };
        print!("{announcement}");
        stop.recv().await;
    }
    tokio::select! {
        () = server.shutdown() => Ok(()),
        () = stop.recv() => bail!("stopped at once: connections were cut"),
    }
}

async fn open_store(
    arguments: &ServeArguments,
    directory: &Path,
) -> anyhow::Result<Arc<dyn Store>> {
    Ok(match arguments.store {
        StoreKind::Memory => Arc::new(MemoryStore::new()),
        StoreKind::Embedded => {
            let settings = Settings::default()
                .keep_age(arguments.keep_age)
                .keep_bytes(u64::try_from(arguments.keep_bytes).unwrap_or(u64::MAX));
            Arc::new(EmbeddedStore::open(directory.join("store"), settings)?)
        }
        StoreKind::Etcd => {
            let settings = arguments.etcd.settings()?.keep_age(arguments.keep_age);
            Arc::new(EtcdStore::open(settings).await?)
        }
    })
}

/// Makes a directory that only its owner may enter, if it is not there.
fn make_private(directory: &Path) -> std::io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(above) = directory.parent() {
        std::fs::create_dir_all(above)?;
    }
    match DirBuilder::new().mode(0o700).create(directory) {
        // Another process may be starting, too.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn data_directory(asked: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(directory) = asked {
        return Ok(directory.to_owned());
    }
    let set = |name: &str| std::env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let base = set("XDG_DATA_HOME").or_else(|| Some(set("HOME")?.join(".local/share")));
    let base = base.context("there is no home directory: name a directory with --data-dir")?;
    Ok(base.join("masthead"))
}
