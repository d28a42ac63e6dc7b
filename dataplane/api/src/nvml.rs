//! The rows of NVML: which of its functions there are, and which are answered.

use std::path::PathBuf;

use crate::header::Type;
use crate::place::root;

pub struct Row {
    pub name: String,
    pub answered: Answered,
    pub params: Vec<(String, Type)>,
}

/// By `crate::answers::NAME` of the library, or with `NVML_ERROR_NOT_SUPPORTED` or, where it is [`Answered::Setting`],
/// `NVML_ERROR_NO_PERMISSION`, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    Here,
    Host,
    Setting,
    Lacking,
}

impl Answered {
    /// Why a function is not answered; the words of the rows.
    pub const REASONS: [(Answered, &str, &str); 3] = [
        (
            Answered::Host,
            "host",
            "of the physical GPU or its node: serial numbers, temperatures, clocks, links, errors. A tenant is not \
             told, or nobody measures it for him",
        ),
        (Answered::Setting, "setting", "changes the GPU or its driver for everybody; that is the operator's to do"),
        (
            Answered::Lacking,
            "lacking",
            "of what Orion's vGPUs have not: MIG, NVIDIA's own vGPUs, NVLink, video engines, events, accounting, units",
        ),
    ];
}

/// Bodiless functions as in the driver API's rows, with one word: `#[here]`, or why not.
pub fn load() -> Result<Vec<Row>, String> {
    let folder = root().join("dataplane/api/nvml");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .map_err(|e| format!("listing {}: {e}", folder.display()))?
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .collect();
    files.sort();
    let mut rows: Vec<Row> = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|e| format!("reading {}: {e}", file.display()))?;
        for row in parse(&text).map_err(|e| format!("{}: {e}", file.display()))? {
            if rows.iter().any(|r| r.name == row.name) {
                return Err(format!("{}: {} is there twice", file.display(), row.name));
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

fn parse(text: &str) -> Result<Vec<Row>, String> {
    let foreign = format!("unsafe extern \"C\" {{\n{}\n}}", text.replace("//!", "//"));
    let block: syn::ItemForeignMod = syn::parse_str(&foreign).map_err(|e| e.to_string())?;
    block.items.iter().map(row).collect()
}

fn row(item: &syn::ForeignItem) -> Result<Row, String> {
    let syn::ForeignItem::Fn(f) = item else { return Err("a row is a function".to_owned()) };
    let name = f.sig.ident.to_string();
    let mut words = f.attrs.iter().filter(|a| !a.path().is_ident("doc")).map(syn::Attribute::path);
    let answered = match (words.next(), words.next()) {
        (Some(word), None) if word.is_ident("here") => Some(Answered::Here),
        (Some(word), None) => Answered::REASONS.iter().find(|(_, name, _)| word.is_ident(name)).map(|(a, ..)| *a),
        _ => None,
    };
    let answered =
        answered.ok_or_else(|| format!("{name}: there is one word: #[here], #[host], #[setting] or #[lacking]"))?;
    let mut params = Vec::new();
    for argument in &f.sig.inputs {
        let syn::FnArg::Typed(argument) = argument else { return Err(format!("{name}: a parameter has a name")) };
        let syn::Pat::Ident(pattern) = &*argument.pat else { return Err(format!("{name}: a parameter has a name")) };
        let ty = Type::from_syn(&argument.ty).ok_or_else(|| format!("{name}: {}: unexpected type", pattern.ident))?;
        params.push((pattern.ident.to_string(), ty));
    }
    Ok(Row { name, answered, params })
}
