//! Names that certain tools interpret, by class, each class with its source.

use super::NameClass;

/// The classes. `docs/environment.md` has the same table.
#[rustfmt::skip]
pub const CLASSES: &[NameClass] = &[
    NameClass {
        name: "Loader and C library: objects, character sets, hosts",
        source: "ld.so(8), environ(7), resolv.conf(5), dyld(1), mtrace(3)",
        names: &["LD_*", "DYLD_*", "RTLD_*", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "NLSPATH", "HOSTALIASES", "LOCALDOMAIN", "RES_OPTIONS", "RESOLV_*", "MALLOC_TRACE", "GETCONF_DIR", "LIBPATH", "SHLIB_PATH", "TZDIR", "*SAN_OPTIONS", "LLVM_PROFILE_FILE", "GMON_OUT_PREFIX"],
    },
    NameClass {
        name: "Shells: what is run, read or split at their start",
        source: "bash(1), dash(1), zshall(1), readline(3)",
        names: &["PATH", "SHELL", "ENV", "IFS", "BASH_*", "BASHOPTS", "SHELLOPTS", "PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS3", "PS4", "ZDOTDIR", "FPATH", "CDPATH", "FCEDIT", "INPUTRC", "EXECIGNORE", "GLOBIGNORE", "HISTFILE", "COMSPEC", "PATHEXT", "PSMODULEPATH"],
    },
    NameClass {
        name: "Interpreters: modules, options and code at their start",
        source: "python(1), perlrun(1), ruby(1), node(1), lua(1), php(1), tclsh(n), R, erl(1), the manuals of Julia, Guile, Deno, Bun, the manuals of Jupyter, IPython and Matplotlib",
        names: &["PYTHON*", "PERL*", "RUBY*", "NODE_*", "LUA_*", "PHPRC", "PHP_*", "TCLLIBPATH", "R_*", "JULIA_*", "ERL_*", "ELIXIR_*", "GUILE_*", "DENO_*", "BUN_*", "ELECTRON_*", "AWKPATH", "AWKLIBPATH", "VIRTUAL_ENV", "CONDA_*", "PYENV_*", "RBENV_*", "NVM_*", "ASDF_*", "MISE_*", "DIRENV_*", "JUPYTER_*", "IPYTHON*", "MPL*", "OCTAVE_*"],
    },
    NameClass {
        name: "Runtimes: agents, options and profilers of virtual machines",
        source: "java(1) and its JNI invocation options, .NET runtime configuration and profiling, mono(1), the start scripts of Tomcat, Hadoop, Spark and Kafka",
        names: &["CLASSPATH", "JAVA_*", "JDK_*", "_JAVA_*", "JRE_*", "DOTNET_*", "COMPLUS_*", "CORECLR_*", "COR_*", "MONO_*", "NUGET_*", "MSBUILD*", "CATALINA_*", "HADOOP_*", "SPARK_*", "KAFKA_*", "HIVE_*"],
    },
    NameClass {
        name: "Plugins of libraries",
        source: "OpenSSL's config(5) and env(7), krb5.conf(5), gtk and gio manuals, Qt's QPluginLoader, GStreamer, the Vulkan loader, Mesa, ImageMagick, GDAL, OpenMP (OMP_TOOL_LIBRARIES)",
        names: &["OPENSSL_*", "KRB5*", "SASL_PATH", "GTK_*", "GIO_*", "QT_*", "GST_*", "ODBCINI", "ODBCSYSINI", "TERMINFO", "TERMINFO_DIRS", "TERMCAP", "GDK_*", "VK_*", "LIBGL_*", "MESA_*", "EGL_*", "__EGL_*", "__GLX_*", "LIBVA_*", "VDPAU_*", "OCL_*", "OPENCL_*", "OMP_*", "OMPI_*", "MAGICK_*", "GDAL_*", "LIBMYSQL_*", "ALSA_*", "FONTCONFIG_*", "SNAP*"],
    },
    NameClass {
        name: "Compilers, linkers and what wraps them",
        source: "gcc(1), ccache(1), pkg-config(1), the Cargo book (environment variables), rustup, cmd/go (environment)",
        names: &["CC", "CXX", "CPP", "LD", "AR", "AS", "NM", "FC", "RANLIB", "STRIP", "OBJCOPY", "HOSTCC", "HOSTCXX", "CROSS_COMPILE", "*CFLAGS", "*CXXFLAGS", "*CPPFLAGS", "*LDFLAGS", "CC_*", "CXX_*", "AR_*", "TARGET_CC", "HOST_CC", "GCC_EXEC_PREFIX", "COMPILER_PATH", "LIBRARY_PATH", "CPATH", "*_INCLUDE_PATH", "PKG_CONFIG*", "CCACHE_*", "SCCACHE_*", "DISTCC_*", "SDKROOT", "DEVELOPER_DIR", "RUSTC", "RUSTC_*", "RUSTDOC*", "RUSTFLAGS", "CARGO", "CARGO_*", "RUSTUP_*", "GOFLAGS", "GOENV", "GOPATH", "GOROOT", "GOBIN", "GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOSUMCHECK", "GONOPROXY", "GOPRIVATE", "GOINSECURE", "GOTOOLCHAIN", "GOTOOLDIR", "GOVCS", "GOAUTH", "GOWORK", "GOCACHEPROG", "CGO_*"],
    },
    NameClass {
        name: "Build tools and test runners: options, files and steps of their own",
        source: "GNU make manual (variables from the environment), cmake-env-variables(7), bazel, Maven, Gradle, pytest, tox",
        names: &["MAKE", "MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS", "MAKEFILES", "MAKELEVEL", "CMAKE_*", "NINJA_*", "MESON*", "BAZEL_*", "KBUILD_*", "ANT_*", "MAVEN_*", "MVN_*", "GRADLE_*", "SBT_*", "PYTEST_*", "TOX_*", "SETUPTOOLS_*", "DISTUTILS_*"],
    },
    NameClass {
        name: "Package managers: settings, registries and scripts",
        source: "npm-config(7), yarn, pnpm, pip (configuration), uv, Poetry, Bundler, RubyGems, Composer, Homebrew, Nix, Guix, Twine",
        names: &["NPM_CONFIG_*", "YARN_*", "PNPM_*", "COREPACK_*", "PIP_*", "PIPX_*", "PIPENV_*", "POETRY_*", "UV_*", "HATCH_*", "BUNDLE_*", "GEM_*", "COMPOSER_*", "HOMEBREW_*", "NIX_*", "OPAM*", "CABAL_*", "STACK_*", "MIX_*", "HEX_*", "CONAN_*", "VCPKG_*", "GUIX_*", "TWINE_*", "FLATPAK_*"],
    },
    NameClass {
        name: "Pagers, editors and browsers: programs that others start",
        source: "environ(7), git-var(1), less(1), man(1), vim (initialization), systemctl(1), mailcap (RFC 1524), Puppeteer, Karma",
        names: &["PAGER", "*_PAGER", "MANPAGER", "MANOPT", "LESS*", "MORE", "EDITOR", "*_EDITOR", "VISUAL", "BROWSER", "*_BROWSER", "VIMINIT", "EXINIT", "VIM", "VIMRUNTIME", "MYVIMRC", "EMACSLOADPATH", "FZF_*", "BAT_*", "CHROME_*", "PUPPETEER_*", "PLAYWRIGHT_*", "MAILCAPS", "MANPATH", "INFOPATH", "GROFF_*"],
    },
    NameClass {
        name: "Version control and transport: helpers, hooks and remote shells",
        source: "git(1), rsync(1), hg(1), svn and CVS manuals, ssh(1)",
        names: &["GIT_*", "RSYNC_*", "CVS_RSH", "CVSROOT", "SVN_*", "HG*", "BZR_*", "SSH_*", "SUDO_*"],
    },
    NameClass {
        name: "Options that tools read beside their arguments",
        source: "grep(1), tar(1), zip(1), gzip(1), xz(1), ripgrep's and ack's manuals, curl(1), wget(1), Ghostscript, psql(1), kpathsea, ldap.conf(5)",
        names: &["GREP_OPTIONS", "TAR_OPTIONS", "TAPE", "ZIPOPT", "UNZIP", "UNZIPOPT", "GZIP", "BZIP", "BZIP2", "XZ_OPT", "XZ_DEFAULTS", "RIPGREP_CONFIG_PATH", "ACK_*", "ACKRC", "CURL_HOME", "WGETRC", "SYSTEM_WGETRC", "NETRC", "VALGRIND_OPTS", "GS_*", "PSQLRC", "REDISCLI_*", "SQLPATH", "ORACLE_*", "TNS_ADMIN", "*INPUTS", "TEXMF*", "LDAPCONF", "LDAPRC", "LDAPNOINIT"],
    },
    NameClass {
        name: "TLS: whom programs trust, and keys of connections",
        source: "OpenSSL's SSL_CTX_load_verify_locations(3), NSS key log, curl(1), Requests, gRPC",
        names: &["SSL_*", "SSLKEYLOGFILE", "*_CA_BUNDLE", "*_CA_CERT", "*_CA_CERTS", "*_CA_FILE", "*_CACERT", "*_CERT_FILE", "*_CERT_DIR", "CERT_FILE", "PGSSL*", "GRPC_*"],
    },
    NameClass {
        name: "Proxies and addresses to which data is sent",
        source: "curl(1), the manuals of the OpenAI, Anthropic and AWS SDKs, OpenTelemetry's environment variables, libpq, MySQL, ldap.conf(5), Hugging Face, HashiCorp's tools",
        names: &["HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY", "*_PROXY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_HOST", "ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL", "OLLAMA_HOST", "AWS_ENDPOINT_URL*", "VAULT_ADDR", "VAULT_AGENT_ADDR", "GH_HOST", "OTEL_*", "SOCKS*", "PG*", "MYSQL_*", "LDAPURI", "LDAPHOST", "LDAPTLS*", "HF_*", "CONSUL_*", "NOMAD_*", "VAULT_*"],
    },
    NameClass {
        name: "Homes of settings",
        source: "XDG Base Directory specification, docker(1), kubectl, AWS CLI, gcloud, Azure CLI, GitHub CLI, Terraform, Ansible, Helm, libpq",
        names: &["HOME", "USERPROFILE", "XDG_*", "DOCKER_*", "BUILDKIT_*", "BUILDX_*", "COMPOSE_*", "CONTAINERS_*", "CONTAINER_*", "PODMAN_*", "REGISTRY_AUTH_FILE", "KUBECONFIG", "KUBE_*", "KUBECTL_*", "HELM_*", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_PROFILE", "AWS_DATA_PATH", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_*", "AWS_EC2_METADATA_*", "BOTO_CONFIG", "CLOUDSDK_*", "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CONFIG_DIR", "AZURE_EXTENSION_DIR", "GH_CONFIG_DIR", "GH_PATH", "TF_CLI_*", "TF_PLUGIN_*", "TF_DATA_DIR", "TF_REATTACH_PROVIDERS", "TERRAFORM_CONFIG", "ANSIBLE_*", "PGSERVICEFILE", "PGSYSCONFDIR", "PGPASSFILE", "MYSQL_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"],
    },
    NameClass {
        name: "Sockets of agents and of the session",
        source: "ssh-agent(1), gpg-agent(1), dbus-daemon(1), X(7), sd_notify(3), systemd.exec(5)",
        names: &["GPG_*", "GNUPGHOME", "PINENTRY_*", "DBUS_*", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "ICEAUTHORITY", "NOTIFY_SOCKET", "LISTEN_*", "SYSTEMD_*", "JOURNAL_STREAM", "CREDENTIALS_DIRECTORY", "TMUX"],
    },
    NameClass {
        name: "This daemon",
        source: "this document",
        names: &["ABIDE_*"],
    },
];
