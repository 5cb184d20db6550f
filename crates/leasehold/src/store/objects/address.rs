//! Where the objects are, as the URL says.
//!
//! ```text
//! s3://BUCKET[/PREFIX][?endpoint=URL&region=REGION&allow-http]
//! gs://BUCKET[/PREFIX][?endpoint=URL&allow-http]
//! az://CONTAINER[/PREFIX][?endpoint=URL&allow-http]
//! ```

use std::fmt;
use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::HttpConnector;
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::error::invalid;
use crate::store::api::{Key, Keyspace};
use crate::{Error, ErrorKind, Result};

/// What is escaped in a part of a key. Some services drop a dot at its end.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// The longest key that all services accept, in bytes.
const KEY_BYTES_MAX: usize = 1_024;

/// The object by which a client checks the service.
const PROBE: &str = "leasehold-probe";

/// Whose interface a service has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cloud {
    Amazon,
    Google,
    Azure,
}

impl Cloud {
    /// Where the environment has the credentials.
    pub(super) const fn variables(self) -> &'static str {
        match self {
            Self::Amazon => {
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role"
            }
            Self::Google => "GOOGLE_APPLICATION_CREDENTIALS, or give the machine a service account",
            Self::Azure => {
                "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or give the machine an identity"
            }
        }
    }
}

/// Where the objects are. Its `Display` is the URL, which contains no secret.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) cloud: Cloud,
    pub(super) endpoint: Option<String>,
    bucket: String,
    prefix: String,
    region: Option<String>,
    allows_http: bool,
    url: String,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (scheme, rest) = base.split_once("://").unwrap_or((base, ""));
        let cloud = match scheme {
            "gs" => Cloud::Google,
            "az" => Cloud::Azure,
            _ => Cloud::Amazon,
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if rest.contains('@') {
            let variables = cloud.variables();
            return Err(invalid(format!(
                "the URL of an object store contains no credentials; set {variables}"
            )));
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if bucket.is_empty() || !bucket.chars().all(is_name) {
            return Err(invalid("the store URL must be as in s3://BUCKET/PREFIX"));
        }
        if cloud == Cloud::Amazon && bucket.ends_with("--x-s3") {
            return Err(invalid(
                "a directory bucket (S3 Express) lists its objects without order; choose a general purpose bucket",
            ));
        }
        let prefix = Path::from_url_path(prefix)
            .map_err(|_| invalid("the prefix in the store URL has an empty or invalid part"))?;
        let mut address = Self {
            cloud,
            endpoint: None,
            bucket: bucket.to_owned(),
            prefix: prefix.into(),
            region: None,
            allows_http: false,
            url: url.to_owned(),
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "endpoint" => address.endpoint = Some(endpoint(value)?),
                "region" if cloud == Cloud::Amazon && value.chars().all(is_name) => {
                    address.region = Some(value.to_owned());
                }
                "allow-http" if value.is_empty() => address.allows_http = true,
                _ => {
                    return Err(invalid(
                        "the parameters of the store URL must be endpoint=URL, allow-http, and with s3:// region=REGION",
                    ));
                }
            }
        }
        address.or_endpoint(None)
    }

    /// With the endpoint that the environment names, unless the URL names one.
    pub(super) fn with_environment(self) -> Result<Self> {
        let endpoint = match self.cloud {
            Cloud::Amazon => {
                let builder = AmazonS3Builder::from_env();
                let endpoint = |key| builder.get_config_value(&key);
                let own = endpoint(AmazonS3ConfigKey::S3Endpoint);
                own.or_else(|| endpoint(AmazonS3ConfigKey::Endpoint))
            }
            Cloud::Google => {
                GoogleCloudStorageBuilder::from_env().get_config_value(&GoogleConfigKey::BaseUrl)
            }
            Cloud::Azure => {
                MicrosoftAzureBuilder::from_env().get_config_value(&AzureConfigKey::Endpoint)
            }
        };
        self.or_endpoint(endpoint)
    }

    /// With this endpoint, unless it has one.
    fn or_endpoint(mut self, endpoint: Option<String>) -> Result<Self> {
        self.endpoint = self.endpoint.or(endpoint);
        if self.uses_http() && !self.allows_http {
            return Err(invalid(
                "others on the network can read and change requests to an http:// endpoint; use https://, or add \
                 allow-http to the URL",
            ));
        }
        Ok(self)
    }

    /// Whether the endpoint has no TLS.
    pub(super) fn uses_http(&self) -> bool {
        let endpoint = self.endpoint.as_deref().unwrap_or_default();
        endpoint.starts_with("http://")
    }

    /// The client of the service, which sends each request once, with the credentials of the environment. Only the URL allows
    /// requests without TLS, except those for the credentials of this machine.
    pub(super) fn client(&self, connector: impl HttpConnector) -> Result<Arc<dyn ObjectStore>> {
        let retry = RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        };
        let built = match self.cloud {
            Cloud::Amazon => {
                let mut builder = AmazonS3Builder::from_env()
                    .with_bucket_name(&self.bucket)
                    .with_conditional_put(S3ConditionalPut::ETagMatch)
                    .with_allow_http(self.allows_http)
                    .with_retry(retry)
                    .with_http_connector(connector);
                if let Some(endpoint) = &self.endpoint {
                    builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
                }
                if let Some(region) = &self.region {
                    builder = builder.with_region(region);
                }
                builder.build().map(shared)
            }
            Cloud::Google => {
                let allow_http = GoogleConfigKey::Client(ClientConfigKey::AllowHttp);
                let mut builder = GoogleCloudStorageBuilder::from_env()
                    .with_bucket_name(&self.bucket)
                    .with_config(allow_http, self.allows_http.to_string())
                    .with_retry(retry)
                    .with_http_connector(connector);
                if let Some(endpoint) = &self.endpoint {
                    builder = builder.with_base_url(endpoint);
                }
                builder.build().map(shared)
            }
            Cloud::Azure => {
                let mut builder = MicrosoftAzureBuilder::from_env()
                    .with_container_name(&self.bucket)
                    .with_allow_http(self.allows_http)
                    .with_retry(retry)
                    .with_http_connector(connector);
                if let Some(endpoint) = &self.endpoint {
                    builder = builder.with_endpoint(endpoint.clone());
                }
                if !self.allows_http {
                    builder = builder.with_use_emulator(false);
                }
                builder.build().map(shared)
            }
        };
        // Its error could quote a secret.
        built.map_err(|_| {
            let variables = self.cloud.variables();
            invalid(format!(
                "the credentials in the environment are incomplete or malformed; set {variables}"
            ))
        })
    }

    /// The object of a name.
    pub(super) fn object(&self, key: &Key) -> Result<Path> {
        let (directory, name) = (self.directory(&key.space), key.name.as_str());
        path(&format!("{directory}/{}", escaped(name)))
    }

    /// What precedes the names of a keyspace.
    pub(super) fn directory(&self, space: &Keyspace) -> String {
        let (namespace, tenant) = (space.namespace().as_str(), space.tenant().as_str());
        format!("{}/{}/{}", self.prefix, escaped(namespace), escaped(tenant))
    }

    /// The object by which a client checks the service.
    pub(super) fn probe(&self) -> Result<Path> {
        path(&format!("{}/{PROBE}", self.prefix))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn shared(client: impl ObjectStore) -> Arc<dyn ObjectStore> {
    Arc::new(client)
}

/// A part of a key.
pub(super) fn escaped(part: &str) -> impl fmt::Display + '_ {
    utf8_percent_encode(part, ESCAPED)
}

/// The text that was escaped.
pub(super) fn unescaped(part: &str) -> Option<String> {
    let text = percent_decode_str(part).decode_utf8().ok()?;
    Some(text.into_owned())
}

/// The path of an escaped key.
pub(super) fn path(key: &str) -> Result<Path> {
    let message = match Path::parse(key) {
        Ok(path) if path.as_ref().len() <= KEY_BYTES_MAX => return Ok(path),
        Ok(path) => format!(
            "with the prefix and its escapes it has {} bytes, and object stores accept {KEY_BYTES_MAX}; shorten it",
            path.as_ref().len()
        ),
        Err(_) => "object stores do not accept it".to_owned(),
    };
    Err(Error::new(ErrorKind::InvalidName, message))
}

/// The endpoint in a URL.
fn endpoint(value: &str) -> Result<String> {
    let url = unescaped(value).unwrap_or_default();
    let host = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    match host {
        Some(host) if !host.is_empty() && !host.contains(['@', '?', '#']) => {
            Ok(url.trim_end_matches('/').to_owned())
        }
        _ => Err(invalid(
            "the endpoint in the store URL must be as in endpoint=https://HOST:PORT, without credentials",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use object_store::ClientOptions;
    use object_store::client::HttpClient;

    use super::super::connector::Connector;
    use super::*;
    use crate::store::api::fixture::key;
    use crate::store::lock::lock;
    use crate::store::options::OpenOptions;

    #[test]
    fn a_name_has_a_key_of_its_own() {
        let address = Address::parse("s3://b/locks/a?region=eu-central-1").unwrap();
        for (name, object) in [
            ("a", "locks/a/app/t/a"),
            ("a/b.", "locks/a/app/t/a%2Fb%2E"),
            ("100 %", "locks/a/app/t/100%20%25"),
        ] {
            let path = address.object(&key(name)).unwrap();
            assert_eq!(path.as_ref(), object);
            let found = path.filename().and_then(unescaped);
            assert_eq!(found.as_deref(), Some(name));
        }
        let plain = Address::parse("gs://b").unwrap();
        assert_eq!(plain.object(&key("x")).unwrap().as_ref(), "app/t/x");
        let error = plain.object(&key(&"ä".repeat(250))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidName);
    }

    #[test]
    fn a_url_that_is_wrong_is_an_error_without_its_secrets() {
        for url in [
            "s3:",
            "s3://",
            "s3://KEY:s3cret@b/p",
            "s3://b/p//q",
            "s3://b?endpoint=https://KEY:s3cret@h",
            "s3://b?endpoint=http://h:9000",
            "s3://b?endpoint=h:9000",
            "s3://b?secret=s3cret",
            "gs://b?region=r",
            "s3://b--use1-az4--x-s3",
        ] {
            let error = Address::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{url}");
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        }
        let url = "s3://b/p?endpoint=http://127.0.0.1:9000&allow-http";
        assert_eq!(Address::parse(url).unwrap().to_string(), url);
    }

    #[test]
    fn an_endpoint_of_the_environment_needs_the_permission_of_the_url() {
        let of = |url: &str, endpoint: &str| {
            let address = Address::parse(url).unwrap();
            address.or_endpoint(Some(endpoint.to_owned()))
        };
        for url in ["s3://b", "gs://b", "az://b"] {
            let error = of(url, "http://h:9000").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{url}");
            assert!(error.to_string().contains("allow-http"), "{error}");
            assert!(!of(url, "https://h:9000").unwrap().uses_http());
            let allowed = of(&format!("{url}?allow-http"), "http://h:9000");
            assert!(allowed.unwrap().uses_http());
        }
        let own = of("s3://b?endpoint=https://own", "http://h:9000").unwrap();
        assert_eq!(own.endpoint.as_deref(), Some("https://own"));
    }

    /// A connector that keeps whether its last client may send requests without TLS: that of the service is made last.
    #[derive(Clone, Debug)]
    struct Recorder(Connector, Arc<Mutex<Option<String>>>);

    impl HttpConnector for Recorder {
        fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
            *lock(&self.1) = options.get_config_value(&ClientConfigKey::AllowHttp);
            self.0.connect(options)
        }
    }

    #[test]
    fn only_the_url_allows_requests_without_tls() {
        let connector = Connector::new(&OpenOptions::default()).unwrap();
        let recorder = Recorder(connector, Arc::default());
        for (url, allowed) in [
            ("s3://b", "false"),
            ("gs://b", "false"),
            ("s3://b?allow-http", "true"),
            ("gs://b?allow-http", "true"),
        ] {
            let address = Address::parse(url).unwrap();
            address.client(recorder.clone()).unwrap();
            assert_eq!(lock(&recorder.1).as_deref(), Some(allowed), "{url}");
        }
    }
}
