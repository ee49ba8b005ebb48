//! What is done before the crate is compiled: the interface to the server is made of
//! `src/server/api.h`, and an option of the linker is passed on.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

const HEADER: &str = "src/server/api.h";
const TABLES: &str = "Required|Optional";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=src");
    let header = fs::read_to_string(HEADER)?;
    let out = env::var("OUT_DIR")?;
    let write = |file: &str, text: &str| fs::write(Path::new(&out).join(file), text);

    // Types and constants. The server's objects are redis-module's types: so both can be mixed.
    let objects = objects(&header);
    let types = bindings().allowlist_file(HEADER).blocklist_type(TABLES);
    let types = types
        .blocklist_type(objects.join("|"))
        .generate()?
        .to_string();
    write("types.rs", &types)?;
    let objects = format!("pub use redis_module::raw::{{{}}};", objects.join(","));
    write("objects.rs", &objects)?;

    // The tables of functions by themselves: they are compiled twice, once with redis-module's types.
    let tables = bindings().allowlist_recursively(false);
    let tables = tables.allowlist_type(TABLES).generate()?;
    write("tables.rs", &tables.to_string())?;

    // Lists, of which api.rs makes the names of the functions and the comparison.
    let functions = TABLES.split('|').map(|table| functions(&header, table));
    write("functions.rs", &functions.collect::<String>())?;
    write("same.rs", &constants_and_fields(&types))?;

    // Once loaded, the code stays mapped: after a load that was refused, the server may still have a callback to call,
    // and a thread a destructor.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    Ok(())
}

fn bindings() -> bindgen::Builder {
    let builder = bindgen::builder().header(HEADER).layout_tests(false);
    builder.formatter(bindgen::Formatter::Prettyplease)
}

/// The types that are declared only: `typedef struct Name Name;`.
fn objects(header: &str) -> Vec<&str> {
    let declared = header.split("typedef struct ").skip(1);
    let names = declared.filter_map(|rest| rest.split_once(";\n")?.0.split_once(' '));
    names.filter(|(a, b)| a == b).map(|(a, _)| a).collect()
}

/// `functions!(Table: Name RedisModule_Name ...);` of the lines `type (*Name)(...);` of a table.
fn functions(header: &str, table: &str) -> String {
    let rest = header.split(&format!("struct {table} {{")).nth(1);
    let fields = rest.and_then(|rest| rest.split("\n};").next());
    let mut list = vec![format!("functions!({table}:")];
    for field in fields.unwrap_or_default().split("(*").skip(1) {
        let name = field.split(')').next().unwrap_or_default();
        list.push(format!(" {name} RedisModule_{name}"));
    }
    list.concat() + ");\n"
}

/// `constant!(NAME);`, `structure!(Name);` and `field!(Name field);` for all that there are.
fn constants_and_fields(types: &str) -> String {
    let (mut list, mut of) = (Vec::new(), "");
    for line in types.lines() {
        match line.split([' ', ':']).collect::<Vec<_>>()[..] {
            ["pub", "const", name, ..] => list.push(format!("constant!({name});\n")),
            ["pub", "struct" | "union", name, ..] => of = name,
            ["", "", "", "", "pub", field, ..] => list.push(format!("field!({of} {field});\n")),
            ["}"] => list.push(format!("structure!({of});\n")),
            _ => (),
        }
    }
    list.concat()
}
