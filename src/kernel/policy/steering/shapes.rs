//! Names whose form alone shows how tools use them, by class, each class with its source. There are
//! more tools than a table can list, so a name of such a form counts unless it is exempt
//! ([`PLAIN`]).

use super::NameClass;

/// The forms. `docs/environment.md` has the same table.
#[rustfmt::skip]
pub const SHAPES: &[NameClass] = &[
    NameClass {
        name: "Options, commands and hooks",
        source: "start scripts of Java servers (`CATALINA_OPTS`), Ghostscript (`GS_OPTIONS`), XLA (`XLA_FLAGS`), direnv, rsync and git (`…_RSH`, `…_ASKPASS`)",
        names: &["*_OPT", "*_OPTS", "*_OPTIONS", "*_FLAGS", "*_ARGS", "*_ARGUMENTS", "*_COMMAND", "*_CMD", "*_HOOK", "*_HOOKS", "*_WRAPPER", "*_LAUNCHER", "*_SHELL", "*_RSH", "*_ASKPASS", "*_PRELOAD"],
    },
    NameClass {
        name: "Programs",
        source: "Karma (`CHROME_BIN`), Puppeteer (`PUPPETEER_EXECUTABLE_PATH`), esbuild (`ESBUILD_BINARY_PATH`), CMake (`…_COMPILER`)",
        names: &["*_BIN", "*_BINARY", "*_EXE", "*_EXECUTABLE", "*_PROGRAM", "*_COMPILER", "*_LINKER", "*_RUNNER", "*_INTERPRETER", "*_HELPER"],
    },
    NameClass {
        name: "Code that is loaded",
        source: "GdkPixbuf (`GDK_PIXBUF_MODULE_FILE`), Vulkan (`VK_ICD_FILENAMES`), OpenMP (`OMP_TOOL_LIBRARIES`), Matplotlib (`MPLBACKEND`)",
        names: &["*_PLUGIN*", "*_MODULE", "*_MODULES", "*_MODULE_FILE", "*_MODULE_DIR", "*_LIBRARY", "*_LIBRARIES", "*_LIB", "*_LIBS", "*_LIB_DIR", "*_FILENAMES", "*_EXTENSIONS", "*_BACKEND", "*_AGENT_LIB"],
    },
    NameClass {
        name: "Homes, settings and files that are read first",
        source: "psql(1) (`PSQLRC`), Jupyter (`JUPYTER_CONFIG_DIR`), Hugging Face (`HF_HOME`), fontconfig (`FONTCONFIG_FILE`)",
        names: &["*_HOME", "*_CONFIG*", "*_CONF", "*_CFG", "*_RC", "*RC", "*_RCFILE", "*_SETTINGS", "*_INIT", "*_INITFILE", "*_STARTUP", "*_PROFILE", "*_PROFILES"],
    },
    NameClass {
        name: "Paths in which something is searched",
        source: "Guix (`GUIX_PACKAGE_PATH`), ImageMagick (`MAGICK_CONFIGURE_PATH`), kpathsea (`TEXINPUTS`), CMake (`…_PREFIX_PATH`)",
        names: &["*_PATH", "*_PATHS", "*_DIRS", "*_PREFIX", "*_ROOT", "*_SEARCH"],
    },
    NameClass {
        name: "Addresses to which data is sent",
        source: "libpq (`PGHOST`), Consul (`CONSUL_HTTP_ADDR`), Twine (`TWINE_REPOSITORY_URL`), Hugging Face (`HF_ENDPOINT`), Dante (`SOCKS_SERVER`), Prisma (`DATABASE_URL`)",
        names: &["*_URL", "*_URLS", "*_URI", "*_HOST", "*_HOSTS", "*_HOSTNAME", "*_ADDR", "*_ADDRESS", "*_SERVER", "*_SERVERS", "*_ENDPOINT", "*_ENDPOINTS", "*_GATEWAY", "*_REGISTRY", "*_MIRROR", "*_API_BASE", "*_SOCK", "*_SOCKET", "*_DSN", "*_BROKER", "*_BROKERS", "*_PROXIES"],
    },
];

/// Names of these forms that no known tool reads: common names of users' own variables.
pub const PLAIN: &[&str] = &[
    "MY_*",
    "APP_*",
    "INPUT_*",
    "OUTPUT_*",
    "SOURCE_*",
    "TARGET_*",
    "API_URL",
    "BASE_URL",
    "CALLBACK_URL",
    "IMAGE_URL",
    "ISSUE_URL",
    "SERVICE_URL",
    "SITE_URL",
    "WEBHOOK_URL",
    "DATA_PATH",
    "FILE_PATH",
    "PROJECT_ROOT",
    "CRC",
    "IRC",
    "SRC",
    "*_CRC",
    "*_SRC",
];
