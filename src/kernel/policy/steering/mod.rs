//! Environment variable names that make a program load code, run another program, read settings
//! that do so, or send data elsewhere. Decided by class, each with its source: by the tool that
//! reads them, where every name with a tool's prefix counts, and by the form of the name.

mod classes;
mod shapes;

pub use self::classes::CLASSES;
pub use self::shapes::{PLAIN, SHAPES};
use super::pattern::fits;

/// A class of names.
pub struct NameClass {
    /// The effect of these names.
    pub name: &'static str,
    /// The documentation that describes them.
    pub source: &'static str,
    /// The names; `*` matches any text.
    pub names: &'static [&'static str],
}

/// Names that match a class but are exempt: they neither load, run nor redirect anything.
const HARMLESS: &[&str] = &[
    "CARGO_TERM_COLOR",
    "NODE_ENV",
    "PGAPPNAME",
    "PGCLIENTENCODING",
    "PGDATABASE",
    "PGPASSWORD",
    "PGTZ",
    "PGUSER",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONIOENCODING",
    "PYTHONUNBUFFERED",
    "PYTHONUTF8",
];

/// True if the name belongs to a tool or has one of the forms. Case is ignored, since some programs
/// read both.
pub fn is_steering(name: &str) -> bool {
    is_of_a_tool(name) || is_of_a_form(name)
}

/// True if a known tool reads the name.
pub fn is_of_a_tool(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    !HARMLESS.contains(&name.as_str()) && CLASSES.iter().any(|class| any(class.names, &name))
}

fn is_of_a_form(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    !HARMLESS.contains(&name.as_str())
        && !any(PLAIN, &name)
        && SHAPES.iter().any(|class| any(class.names, &name))
}

fn any(patterns: &[&str], name: &str) -> bool {
    patterns.iter().any(|pattern| fits(pattern, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_holds_its_names_in_any_case() {
        for (names, class) in [
            (
                &[
                    "LD_PRELOAD",
                    "DYLD_INSERT_LIBRARIES",
                    "HOSTALIASES",
                    "ASAN_OPTIONS",
                ][..],
                "Loader",
            ),
            (
                &["PATH", "BASH_ENV", "BASH_FUNC_ls%%", "PS4", "ENV"],
                "Shells",
            ),
            (
                &[
                    "PYTHONPATH",
                    "PERL5OPT",
                    "NODE_OPTIONS",
                    "RUBYLIB",
                    "LUA_INIT",
                    "PHPRC",
                ],
                "Interpreters",
            ),
            (
                &[
                    "JAVA_TOOL_OPTIONS",
                    "_JAVA_OPTIONS",
                    "CORECLR_PROFILER",
                    "DOTNET_STARTUP_HOOKS",
                ],
                "Runtimes",
            ),
            (&["OPENSSL_CONF", "GTK_MODULES", "KRB5_CONFIG"], "Plugins"),
            (
                &[
                    "CC",
                    "CXX",
                    "RUSTC_WRAPPER",
                    "CARGO_BUILD_RUSTC",
                    "CGO_CFLAGS",
                    "LDFLAGS",
                    "GOFLAGS",
                    "PKG_CONFIG_PATH",
                ],
                "Compilers",
            ),
            (
                &[
                    "MAKEFLAGS",
                    "MAKEFILES",
                    "CMAKE_TOOLCHAIN_FILE",
                    "PYTEST_ADDOPTS",
                    "MAVEN_OPTS",
                ],
                "Build tools",
            ),
            (
                &[
                    "npm_config_registry",
                    "PIP_INDEX_URL",
                    "UV_INDEX",
                    "BUNDLE_PATH",
                    "GEM_HOME",
                ],
                "Package managers",
            ),
            (
                &[
                    "PAGER",
                    "GH_PAGER",
                    "EDITOR",
                    "KUBE_EDITOR",
                    "LESSOPEN",
                    "BROWSER",
                    "VIMINIT",
                ],
                "Pagers",
            ),
            (
                &[
                    "GIT_SSH_COMMAND",
                    "GIT_CONFIG_COUNT",
                    "RSYNC_RSH",
                    "SSH_ASKPASS",
                    "SSH_AUTH_SOCK",
                ],
                "Version control",
            ),
            (&["TAR_OPTIONS", "RIPGREP_CONFIG_PATH", "WGETRC"], "Options"),
            (
                &[
                    "SSL_CERT_FILE",
                    "NODE_EXTRA_CA_CERTS",
                    "REQUESTS_CA_BUNDLE",
                    "CURL_CA_BUNDLE",
                    "SSLKEYLOGFILE",
                ],
                "TLS",
            ),
            (
                &[
                    "HTTP_PROXY",
                    "https_proxy",
                    "ALL_PROXY",
                    "no_proxy",
                    "AWS_ENDPOINT_URL_S3",
                    "OPENAI_BASE_URL",
                ],
                "Proxies",
            ),
            (
                &[
                    "HOME",
                    "XDG_CONFIG_HOME",
                    "DOCKER_CONFIG",
                    "DOCKER_HOST",
                    "KUBECONFIG",
                    "AWS_CONFIG_FILE",
                    "TF_CLI_CONFIG_FILE",
                ],
                "Homes",
            ),
            (
                &[
                    "GPG_AGENT_INFO",
                    "DBUS_SESSION_BUS_ADDRESS",
                    "NOTIFY_SOCKET",
                ],
                "Sockets",
            ),
            (&["ABIDE_RUN_ID", "abide_socket"], "This daemon"),
        ] {
            assert!(
                CLASSES.iter().any(|one| one.name.starts_with(class)),
                "{class}"
            );
            for name in names {
                assert!(is_steering(name), "{name}");
                assert!(is_steering(&name.to_ascii_lowercase()), "{name}");
            }
        }
        for name in [
            "LDAP_BASE",
            "WEATHER_UNITS",
            "GITHUB_REPOSITORY",
            "MY_PATH",
            "GH_TOKEN",
            "NODE_ENV",
            "AWS_REGION",
            "AWS_SECRET_ACCESS_KEY",
            "RUST_LOG",
            "BUILD_KIND",
            "CI",
            "LANG",
            "TZ",
            "TERM",
            "NO_COLOR",
            "OPENAI_API_KEY",
            "DEPLOY_TOKEN",
            "TF_VAR_region",
            "PYTHONUNBUFFERED",
            "DEBUG",
            "PORT",
            "HOST",
            "PGUSER",
            "APP_URL",
            "BASE_URL",
            "MY_CONFIG_FILE",
            "OUTPUT_PATH",
            "DATA_DIR",
            "SRC",
            "DATA_SRC",
            "BRANCH",
            "VERSION",
            "TARGET_HOST",
        ] {
            assert!(!is_steering(name), "{name}");
        }
    }

    #[test]
    fn a_name_counts_by_its_form() {
        for name in [
            "PSQLRC",
            "GDK_PIXBUF_MODULE_FILE",
            "VK_ICD_FILENAMES",
            "MPLBACKEND",
            "JUPYTER_CONFIG_DIR",
            "IPYTHONDIR",
            "GUIX_PACKAGE_PATH",
            "MAGICK_CONFIGURE_PATH",
            "KAFKA_OPTS",
            "CATALINA_OPTS",
            "HADOOP_OPTS",
            "SPARK_SUBMIT_OPTS",
            "GS_OPTIONS",
            "TEXINPUTS",
            "CHROME_BIN",
            "PUPPETEER_EXECUTABLE_PATH",
            "MAILCAPS",
            "HF_ENDPOINT",
            "PGHOST",
            "CONSUL_HTTP_ADDR",
            "TWINE_REPOSITORY_URL",
            "SOCKS_SERVER",
            "DATABASE_URL",
            "LDAP_HOST",
            "UNHEARD_OF_OPTS",
            "UNHEARD_OF_HOME",
            "UNHEARDRC",
            "UNHEARD_CONFIG_DIR",
            "UNHEARD_PLUGIN_DIRS",
            "UNHEARD_SERVER",
        ] {
            assert!(is_steering(name), "{name}");
            assert!(is_steering(&name.to_ascii_lowercase()), "{name}");
        }
    }

    #[test]
    fn the_document_has_every_class_with_its_names_and_source() {
        let document = include_str!("../../../../docs/environment.md");
        for NameClass {
            name,
            source,
            names,
        } in CLASSES.iter().chain(SHAPES)
        {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            let row = format!("| {name} | {} | {source} |", names.join(" "));
            assert!(document.contains(&row), "docs/environment.md lacks:\n{row}");
        }
        for name in HARMLESS.iter().chain(PLAIN) {
            assert!(document.contains(&format!("`{name}`")), "{name}");
        }
    }
}
