//! What COMMAND DOCS and COMMAND INFO say of a command.

use std::ffi::{CStr, c_int};
use std::mem::size_of;
use std::ptr::{null, null_mut};

use super::api::{OK, api, raw};

/// A command as its documentation shows it.
#[derive(Clone, Copy, Debug)]
pub struct Docs {
    /// What it does, in a line.
    pub summary: &'static CStr,
    /// What it costs.
    pub complexity: &'static CStr,
    /// The version of the module that brought it.
    pub since: &'static CStr,
    /// Number of arguments with the command's name; negative: at least that many.
    pub arity: i32,
    /// Its keys, if it has any.
    pub keys: Option<Keys>,
    /// Its arguments.
    pub arguments: &'static [Argument],
    /// What it replies, in lines for FAIRLOCK.HELP. COMMAND DOCS does not show it.
    pub reply: &'static [&'static str],
}

impl Docs {
    /// The command with its arguments, as one would type it.
    #[must_use]
    pub fn syntax(&self, command: &CStr) -> String {
        let mut words = vec![command.to_string_lossy().to_uppercase()];
        words.extend(self.arguments.iter().map(Argument::syntax));
        words.join(" ")
    }
}

/// Which arguments are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// The first one.
    First(KeyUse),
    /// As many as the second argument says, after it. They are read and changed, as EVAL's are.
    Numbered,
}

/// What a command does with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// Reads it.
    Read,
    /// Reads and changes it.
    Update,
    /// Deletes it.
    Delete,
}

/// One argument.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    name: &'static CStr,
    kind: Kind,
    token: Option<&'static CStr>,
    optional: bool,
    repeated: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Key,
    Text,
    Number,
    Keyword,
    OneOf(&'static [Argument]),
    Block(&'static [Argument]),
}

impl Argument {
    const fn new(name: &'static CStr, kind: Kind) -> Self {
        Self {
            name,
            kind,
            token: None,
            optional: false,
            repeated: false,
        }
    }

    /// The key.
    #[must_use]
    pub const fn key(name: &'static CStr) -> Self {
        Self::new(name, Kind::Key)
    }

    /// Any bytes.
    #[must_use]
    pub const fn text(name: &'static CStr) -> Self {
        Self::new(name, Kind::Text)
    }

    /// A whole number.
    #[must_use]
    pub const fn number(name: &'static CStr) -> Self {
        Self::new(name, Kind::Number)
    }

    /// A keyword by itself.
    #[must_use]
    pub const fn keyword(name: &'static CStr, keyword: &'static CStr) -> Self {
        Self::new(name, Kind::Keyword).after(keyword)
    }

    /// One of several.
    #[must_use]
    pub const fn one_of(name: &'static CStr, choices: &'static [Self]) -> Self {
        Self::new(name, Kind::OneOf(choices))
    }

    /// Several in a row.
    #[must_use]
    pub const fn block(name: &'static CStr, parts: &'static [Self]) -> Self {
        Self::new(name, Kind::Block(parts))
    }

    /// It follows this keyword.
    #[must_use]
    pub const fn after(mut self, keyword: &'static CStr) -> Self {
        self.token = Some(keyword);
        self
    }

    /// It may be left out.
    #[must_use]
    pub const fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// There may be several.
    #[must_use]
    pub const fn repeated(mut self) -> Self {
        self.repeated = true;
        self
    }
}

impl Argument {
    fn syntax(&self) -> String {
        let name = self.name.to_string_lossy();
        let joined = |parts: &[Self], by| {
            let parts: Vec<_> = parts.iter().map(Self::syntax).collect();
            parts.join(by)
        };
        let value = match self.kind {
            Kind::Key | Kind::Text | Kind::Number => name.into_owned(),
            Kind::Keyword => String::new(),
            Kind::OneOf(choices) => joined(choices, " | "),
            Kind::Block(parts) => joined(parts, " "),
        };
        let token = self.token.map(CStr::to_string_lossy).unwrap_or_default();
        let text = [&*token, &*value].join(" ");
        let text = text.trim();
        if self.optional {
            format!("[{text}]")
        } else {
            text.to_owned()
        }
    }
}

/// The server's forms of all arguments, kept alive while it copies them.
#[derive(Default)]
struct Forms(Vec<Vec<raw::RedisModuleCommandArg>>);

impl Forms {
    /// Makes the form of a list of arguments: an array that ends with an empty one.
    fn of(&mut self, arguments: &[Argument]) -> *mut raw::RedisModuleCommandArg {
        let mut list: Vec<_> = arguments
            .iter()
            .map(|argument| self.one(argument))
            .collect();
        list.push(empty());
        let start = list.as_mut_ptr();
        // Moving the vector does not move its elements.
        self.0.push(list);
        start
    }

    fn one(&mut self, argument: &Argument) -> raw::RedisModuleCommandArg {
        use raw::{
            RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK as BLOCK,
            RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER as INTEGER,
            RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY as KEY,
            RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF as ONEOF,
            RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN as PURE_TOKEN,
            RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING as STRING,
        };
        let (type_, parts) = match argument.kind {
            Kind::Key => (KEY, None),
            Kind::Text => (STRING, None),
            Kind::Number => (INTEGER, None),
            Kind::Keyword => (PURE_TOKEN, None),
            Kind::OneOf(parts) => (ONEOF, Some(parts)),
            Kind::Block(parts) => (BLOCK, Some(parts)),
        };
        let mut flags = raw::REDISMODULE_CMD_ARG_NONE;
        if argument.optional {
            flags |= raw::REDISMODULE_CMD_ARG_OPTIONAL;
        }
        if argument.repeated {
            flags |= raw::REDISMODULE_CMD_ARG_MULTIPLE;
        }
        raw::RedisModuleCommandArg {
            name: argument.name.as_ptr(),
            type_,
            key_spec_index: if type_ == KEY { 0 } else { -1 },
            token: argument.token.map_or(null(), CStr::as_ptr),
            flags,
            subargs: parts.map_or(null_mut(), |parts| self.of(parts)),
            ..empty()
        }
    }
}

fn empty() -> raw::RedisModuleCommandArg {
    raw::RedisModuleCommandArg {
        name: null(),
        type_: 0,
        key_spec_index: -1,
        token: null(),
        summary: null(),
        since: null(),
        flags: 0,
        deprecated_since: null(),
        subargs: null_mut(),
        display_text: null(),
    }
}

/// A list of one key specification: the second element marks the end.
fn key_specs(keys: Keys) -> [raw::RedisModuleCommandKeySpec; 2] {
    // SAFETY: the structure is plain data for which all zeros is the end of a list.
    let end: raw::RedisModuleCommandKeySpec = unsafe { std::mem::zeroed() };
    let mut spec = end;
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    let update = raw::REDISMODULE_CMD_KEY_RW
        | raw::REDISMODULE_CMD_KEY_ACCESS
        | raw::REDISMODULE_CMD_KEY_UPDATE;
    let (position, flags) = match keys {
        Keys::First(KeyUse::Read) => (
            1,
            raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        ),
        Keys::First(KeyUse::Update) => (1, update),
        Keys::First(KeyUse::Delete) => (
            1,
            raw::REDISMODULE_CMD_KEY_RM | raw::REDISMODULE_CMD_KEY_DELETE,
        ),
        Keys::Numbered => (2, update),
    };
    spec.flags = flags.into();
    spec.bs.index = raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: position };
    if keys == Keys::Numbered {
        spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM;
        spec.fk.keynum = raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_2 {
            keynumidx: 0,
            firstkey: 1,
            keystep: 1,
        };
    } else {
        spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
        spec.fk.range = raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
            lastkey: 0,
            keystep: 1,
            limit: 0,
        };
    }
    [spec, end]
}

/// Gives a command's documentation to the server. False if the server refuses.
pub(super) fn describe(command: *mut raw::RedisModuleCommand, docs: &Docs) -> bool {
    let version = raw::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
    };
    let mut forms = Forms::default();
    let mut specs = docs.keys.map(key_specs);
    let info = raw::RedisModuleCommandInfo {
        version: &raw const version,
        summary: docs.summary.as_ptr(),
        complexity: docs.complexity.as_ptr(),
        since: docs.since.as_ptr(),
        history: null_mut(),
        tips: null(),
        arity: c_int::from(docs.arity),
        key_specs: specs
            .as_mut()
            .map_or(null_mut(), |specs| specs.as_mut_ptr()),
        args: forms.of(docs.arguments),
    };
    // SAFETY: the command was just registered; the server copies everything that `info` points
    // to, which lives until the call returns.
    let status = unsafe { api!(SetCommandInfo(command, &raw const info)) };
    status == OK
}
