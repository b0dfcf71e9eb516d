//! Names of environment variables by which a program is made to load code, to run another program,
//! to read settings that do, or to send what it has elsewhere. Decided by class, each with its
//! source; of a tool that interprets every name with its prefix the whole prefix counts.

/// Names of one class.
pub struct Class {
    /// What they do.
    pub name: &'static str,
    /// Where it is said.
    pub source: &'static str,
    /// Whole names; with `*` at the end everything that begins so, at the start everything that
    /// ends so.
    pub names: &'static [&'static str],
}

/// The classes. `docs/environment.md` has the same table.
#[rustfmt::skip]
pub const CLASSES: &[Class] = &[
    Class {
        name: "Loader and C library: objects, character sets, hosts",
        source: "ld.so(8), environ(7), resolv.conf(5), dyld(1), mtrace(3)",
        names: &["LD_*", "DYLD_*", "RTLD_*", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "NLSPATH", "HOSTALIASES", "LOCALDOMAIN", "RES_OPTIONS", "RESOLV_*", "MALLOC_TRACE", "GETCONF_DIR", "LIBPATH", "SHLIB_PATH", "TZDIR", "*SAN_OPTIONS", "LLVM_PROFILE_FILE", "GMON_OUT_PREFIX"],
    },
    Class {
        name: "Shells: what is run, read or split at their start",
        source: "bash(1), dash(1), zshall(1), readline(3)",
        names: &["PATH", "SHELL", "ENV", "IFS", "BASH_*", "BASHOPTS", "SHELLOPTS", "PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS3", "PS4", "ZDOTDIR", "FPATH", "CDPATH", "FCEDIT", "INPUTRC", "EXECIGNORE", "GLOBIGNORE", "HISTFILE", "COMSPEC", "PATHEXT", "PSMODULEPATH"],
    },
    Class {
        name: "Interpreters: modules, options and code at their start",
        source: "python(1), perlrun(1), ruby(1), node(1), lua(1), php(1), tclsh(n), R, erl(1), the manuals of Julia, Guile, Deno, Bun",
        names: &["PYTHON*", "PERL*", "RUBY*", "NODE_*", "LUA_*", "PHPRC", "PHP_*", "TCLLIBPATH", "R_*", "JULIA_*", "ERL_*", "ELIXIR_*", "GUILE_*", "DENO_*", "BUN_*", "ELECTRON_*", "AWKPATH", "AWKLIBPATH", "VIRTUAL_ENV", "CONDA_*", "PYENV_*", "RBENV_*", "NVM_*", "ASDF_*", "MISE_*", "DIRENV_*"],
    },
    Class {
        name: "Runtimes: agents, options and profilers of virtual machines",
        source: "java(1) and its JNI invocation options, .NET runtime configuration and profiling, mono(1)",
        names: &["CLASSPATH", "JAVA_*", "JDK_*", "_JAVA_*", "JRE_*", "DOTNET_*", "COMPLUS_*", "CORECLR_*", "COR_*", "MONO_*", "NUGET_*", "MSBUILD*"],
    },
    Class {
        name: "Plugins of libraries",
        source: "OpenSSL's config(5) and env(7), krb5.conf(5), gtk and gio manuals, Qt's QPluginLoader, GStreamer",
        names: &["OPENSSL_*", "KRB5*", "SASL_PATH", "GTK_*", "GIO_*", "QT_*", "GST_*", "ODBCINI", "ODBCSYSINI", "TERMINFO", "TERMINFO_DIRS", "TERMCAP"],
    },
    Class {
        name: "Compilers, linkers and what wraps them",
        source: "gcc(1), ccache(1), pkg-config(1), the Cargo book (environment variables), rustup, cmd/go (environment)",
        names: &["CC", "CXX", "CPP", "LD", "AR", "AS", "NM", "FC", "RANLIB", "STRIP", "OBJCOPY", "HOSTCC", "HOSTCXX", "CROSS_COMPILE", "*CFLAGS", "*CXXFLAGS", "*CPPFLAGS", "*LDFLAGS", "CC_*", "CXX_*", "AR_*", "TARGET_CC", "HOST_CC", "GCC_EXEC_PREFIX", "COMPILER_PATH", "LIBRARY_PATH", "CPATH", "*_INCLUDE_PATH", "PKG_CONFIG*", "CCACHE_*", "SCCACHE_*", "DISTCC_*", "SDKROOT", "DEVELOPER_DIR", "RUSTC", "RUSTC_*", "RUSTDOC*", "RUSTFLAGS", "CARGO", "CARGO_*", "RUSTUP_*", "GOFLAGS", "GOENV", "GOPATH", "GOROOT", "GOBIN", "GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOSUMCHECK", "GONOPROXY", "GOPRIVATE", "GOINSECURE", "GOTOOLCHAIN", "GOTOOLDIR", "GOVCS", "GOAUTH", "GOWORK", "GOCACHEPROG", "CGO_*"],
    },
    Class {
        name: "Build tools and test runners: options, files and steps of their own",
        source: "GNU make manual (variables from the environment), cmake-env-variables(7), bazel, Maven, Gradle, pytest, tox",
        names: &["MAKE", "MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS", "MAKEFILES", "MAKELEVEL", "CMAKE_*", "NINJA_*", "MESON*", "BAZEL_*", "KBUILD_*", "ANT_*", "MAVEN_*", "MVN_*", "GRADLE_*", "SBT_*", "PYTEST_*", "TOX_*", "SETUPTOOLS_*", "DISTUTILS_*"],
    },
    Class {
        name: "Package managers: settings, registries and scripts",
        source: "npm-config(7), yarn, pnpm, pip (configuration), uv, Poetry, Bundler, RubyGems, Composer, Homebrew, Nix",
        names: &["NPM_CONFIG_*", "YARN_*", "PNPM_*", "COREPACK_*", "PIP_*", "PIPX_*", "PIPENV_*", "POETRY_*", "UV_*", "HATCH_*", "BUNDLE_*", "GEM_*", "COMPOSER_*", "HOMEBREW_*", "NIX_*", "OPAM*", "CABAL_*", "STACK_*", "MIX_*", "HEX_*", "CONAN_*", "VCPKG_*"],
    },
    Class {
        name: "Pagers, editors and browsers: programs that others start",
        source: "environ(7), git-var(1), less(1), man(1), vim (initialization), systemctl(1)",
        names: &["PAGER", "*_PAGER", "MANPAGER", "MANOPT", "LESS*", "MORE", "EDITOR", "*_EDITOR", "VISUAL", "BROWSER", "*_BROWSER", "VIMINIT", "EXINIT", "VIM", "VIMRUNTIME", "MYVIMRC", "EMACSLOADPATH", "FZF_*", "BAT_*"],
    },
    Class {
        name: "Version control and transport: helpers, hooks and remote shells",
        source: "git(1), rsync(1), hg(1), svn and CVS manuals, ssh(1)",
        names: &["GIT_*", "RSYNC_*", "CVS_RSH", "CVSROOT", "SVN_*", "HG*", "BZR_*", "SSH_*", "SUDO_*"],
    },
    Class {
        name: "Options that tools read beside their arguments",
        source: "grep(1), tar(1), zip(1), gzip(1), xz(1), ripgrep's and ack's manuals, curl(1), wget(1)",
        names: &["GREP_OPTIONS", "TAR_OPTIONS", "TAPE", "ZIPOPT", "UNZIP", "UNZIPOPT", "GZIP", "BZIP", "BZIP2", "XZ_OPT", "XZ_DEFAULTS", "RIPGREP_CONFIG_PATH", "ACK_*", "ACKRC", "CURL_HOME", "WGETRC", "SYSTEM_WGETRC", "NETRC", "VALGRIND_OPTS"],
    },
    Class {
        name: "TLS: whom programs trust, and keys of connections",
        source: "OpenSSL's SSL_CTX_load_verify_locations(3), NSS key log, curl(1), Requests, gRPC",
        names: &["SSL_*", "SSLKEYLOGFILE", "*_CA_BUNDLE", "*_CA_CERT", "*_CA_CERTS", "*_CA_FILE", "*_CACERT", "*_CERT_FILE", "*_CERT_DIR", "CERT_FILE", "PGSSL*", "GRPC_*"],
    },
    Class {
        name: "Proxies and addresses to which data is sent",
        source: "curl(1), the manuals of the OpenAI, Anthropic and AWS SDKs, OpenTelemetry's environment variables",
        names: &["HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY", "*_PROXY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_HOST", "ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL", "OLLAMA_HOST", "AWS_ENDPOINT_URL*", "VAULT_ADDR", "VAULT_AGENT_ADDR", "GH_HOST", "OTEL_*"],
    },
    Class {
        name: "Homes of settings",
        source: "XDG Base Directory specification, docker(1), kubectl, AWS CLI, gcloud, Azure CLI, GitHub CLI, Terraform, Ansible, Helm, libpq",
        names: &["HOME", "USERPROFILE", "XDG_*", "DOCKER_*", "BUILDKIT_*", "BUILDX_*", "COMPOSE_*", "CONTAINERS_*", "CONTAINER_*", "PODMAN_*", "REGISTRY_AUTH_FILE", "KUBECONFIG", "KUBE_*", "KUBECTL_*", "HELM_*", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_PROFILE", "AWS_DATA_PATH", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_*", "AWS_EC2_METADATA_*", "BOTO_CONFIG", "CLOUDSDK_*", "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CONFIG_DIR", "AZURE_EXTENSION_DIR", "GH_CONFIG_DIR", "GH_PATH", "TF_CLI_*", "TF_PLUGIN_*", "TF_DATA_DIR", "TF_REATTACH_PROVIDERS", "TERRAFORM_CONFIG", "ANSIBLE_*", "PGSERVICEFILE", "PGSYSCONFDIR", "PGPASSFILE", "MYSQL_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"],
    },
    Class {
        name: "Sockets of agents and of the session",
        source: "ssh-agent(1), gpg-agent(1), dbus-daemon(1), X(7), sd_notify(3), systemd.exec(5)",
        names: &["GPG_*", "GNUPGHOME", "PINENTRY_*", "DBUS_*", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "ICEAUTHORITY", "NOTIFY_SOCKET", "LISTEN_*", "SYSTEMD_*", "JOURNAL_STREAM", "CREDENTIALS_DIRECTORY", "TMUX"],
    },
    Class {
        name: "This daemon",
        source: "this document",
        names: &["ABIDE_*"],
    },
];

/// Of those with a prefix that counts, what only says how a program talks.
const HARMLESS: &[&str] = &[
    "CARGO_TERM_COLOR",
    "NODE_ENV",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONIOENCODING",
    "PYTHONUNBUFFERED",
    "PYTHONUTF8",
];

/// Is the name of one of the classes? Case makes no other name of it: some programs read both.
pub fn is_steering(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let fits = |pattern: &&str| match (pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
        (Some(start), _) => name.starts_with(start),
        (_, Some(end)) => name.ends_with(end),
        (None, None) => name == **pattern,
    };
    let mut names = CLASSES.iter().flat_map(|class| class.names);
    !HARMLESS.contains(&name.as_str()) && names.any(fits)
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
            "LDAP_HOST",
            "WEATHER_UNITS",
            "GITHUB_REPOSITORY",
            "MY_PATH",
            "GH_TOKEN",
            "NODE_ENV",
            "AWS_REGION",
            "AWS_SECRET_ACCESS_KEY",
            "RUST_LOG",
            "DATABASE_URL",
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
        ] {
            assert!(!is_steering(name), "{name}");
        }
    }

    #[test]
    fn the_document_has_every_class_with_its_names_and_source() {
        let document = include_str!("../../docs/environment.md");
        for Class {
            name,
            source,
            names,
        } in CLASSES
        {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            let row = format!("| {name} | {} | {source} |", names.join(" "));
            assert!(document.contains(&row), "docs/environment.md lacks:\n{row}");
        }
        for name in HARMLESS {
            assert!(document.contains(&format!("`{name}`")), "{name}");
        }
    }
}
