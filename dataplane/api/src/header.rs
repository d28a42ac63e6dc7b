//! What `cuda.h` says, read from the bindgen output that every crate shares.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// A C type as far as the driver API needs one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    Name(String),
    Pointer { mutable: bool, to: Box<Type> },
}

impl Type {
    pub fn name(&self) -> Option<&str> {
        match self {
            Type::Name(n) => Some(n),
            Type::Pointer { .. } => None,
        }
    }

    pub fn from_syn(ty: &syn::Type) -> Option<Type> {
        match ty {
            syn::Type::Path(p) => Some(Type::Name(p.path.segments.last()?.ident.to_string())),
            syn::Type::Ptr(p) => {
                Some(Type::Pointer { mutable: p.mutability.is_some(), to: Box::new(Type::from_syn(&p.elem)?) })
            }
            _ => None,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Name(n) => f.write_str(n),
            Type::Pointer { mutable: true, to } => write!(f, "*mut {to}"),
            Type::Pointer { mutable: false, to } => write!(f, "*const {to}"),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Function {
    pub name: String,
    pub params: Vec<(String, Type)>,
}

pub struct Header {
    /// In the order of the header.
    pub functions: Vec<Function>,
    aliases: HashMap<String, Type>,
    /// Structs and unions: the types of their fields, array types as their elements.
    structs: HashMap<String, Vec<Type>>,
    /// Values of `CUresult`.
    pub results: BTreeMap<u32, String>,
}

/// Unions whose only pointers are device addresses, which mean the same on both sides.
const DEVICE_ADDRESSES_ONLY: [&str; 1] = ["CUlaunchAttributeValue_union"];

impl Header {
    pub fn parse(text: &str) -> Result<Header, String> {
        let file = syn::parse_file(text).map_err(|e| format!("parsing sys.rs: {e}"))?;
        let mut header = Header {
            functions: Vec::new(),
            aliases: HashMap::new(),
            structs: HashMap::new(),
            results: BTreeMap::new(),
        };
        for item in &file.items {
            match item {
                syn::Item::ForeignMod(m) => header.foreign(m)?,
                syn::Item::Type(t) => {
                    if let Some(ty) = Type::from_syn(&t.ty) {
                        header.aliases.insert(t.ident.to_string(), ty);
                    }
                }
                syn::Item::Struct(s) => {
                    header.structs.insert(s.ident.to_string(), s.fields.iter().filter_map(field).collect());
                }
                syn::Item::Union(u) => {
                    header.structs.insert(u.ident.to_string(), u.fields.named.iter().filter_map(field).collect());
                }
                syn::Item::Use(u) => header.renamed(&u.tree),
                syn::Item::Const(c) => header.constant(c),
                _ => {}
            }
        }
        Ok(header)
    }

    fn foreign(&mut self, block: &syn::ItemForeignMod) -> Result<(), String> {
        for item in &block.items {
            let syn::ForeignItem::Fn(f) = item else { continue };
            let mut params = Vec::new();
            for arg in &f.sig.inputs {
                let syn::FnArg::Typed(arg) = arg else { continue };
                let syn::Pat::Ident(name) = &*arg.pat else { continue };
                let ty = Type::from_syn(&arg.ty).ok_or_else(|| format!("{}: unexpected type", f.sig.ident))?;
                params.push((name.ident.to_string(), ty));
            }
            self.functions.push(Function { name: f.sig.ident.to_string(), params });
        }
        Ok(())
    }

    /// `pub use self::CUlimit_enum as CUlimit;`
    fn renamed(&mut self, tree: &syn::UseTree) {
        if let syn::UseTree::Path(path) = tree
            && let syn::UseTree::Rename(r) = &*path.tree
        {
            self.aliases.insert(r.rename.to_string(), Type::Name(r.ident.to_string()));
        }
    }

    fn constant(&mut self, c: &syn::ItemConst) {
        let is_result =
            matches!(Type::from_syn(&c.ty), Some(Type::Name(n)) if n == "cudaError_enum" || n == "CUresult");
        if let (true, syn::Expr::Lit(lit)) = (is_result, &*c.expr)
            && let syn::Lit::Int(value) = &lit.lit
            && let Ok(value) = value.base10_parse()
        {
            self.results.insert(value, c.ident.to_string());
        }
    }

    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|f| f.name == name)
    }

    /// The type with every alias resolved: primitives have Rust's names.
    pub fn canonical(&self, ty: &Type) -> Type {
        match ty {
            Type::Pointer { mutable, to } => Type::Pointer { mutable: *mutable, to: Box::new(self.canonical(to)) },
            Type::Name(n) => {
                if let Some(p) = primitive(n) {
                    return Type::Name(p.to_owned());
                }
                self.aliases.get(n).map_or_else(|| ty.clone(), |t| self.canonical(t))
            }
        }
    }

    /// The Rust integer or float behind a name, if it is one.
    pub fn scalar(&self, name: &str) -> Option<&'static str> {
        match self.canonical(&Type::Name(name.to_owned())) {
            Type::Name(n) => primitive(&n).filter(|p| *p != "c_void"),
            Type::Pointer { .. } => None,
        }
    }

    /// Whether a value of this type is nothing but numbers: no pointer of one process, no handle.
    pub fn is_plain(&self, ty: &Type) -> bool {
        if let Type::Name(n) = ty
            && handle_kind(n).is_some()
        {
            return false;
        }
        match self.canonical_step(ty) {
            Some(next) => self.is_plain(&next),
            None => match ty {
                Type::Pointer { .. } => false,
                Type::Name(n) if DEVICE_ADDRESSES_ONLY.contains(&n.as_str()) => true,
                Type::Name(n) => match primitive(n) {
                    Some(p) => p != "c_void",
                    None => self.structs.get(n).is_some_and(|f| !f.is_empty() && f.iter().all(|t| self.is_plain(t))),
                },
            },
        }
    }

    /// Whether there is a device address in it, or a pointer.
    pub fn holds_address(&self, ty: &Type) -> bool {
        match ty {
            Type::Pointer { .. } => true,
            Type::Name(n) if n == "CUdeviceptr" => true,
            Type::Name(n) => match self.canonical_step(ty) {
                Some(next) => self.holds_address(&next),
                None => self.structs.get(n).is_some_and(|fields| fields.iter().any(|f| self.holds_address(f))),
            },
        }
    }

    fn canonical_step(&self, ty: &Type) -> Option<Type> {
        match ty {
            Type::Name(n) => self.aliases.get(n).cloned(),
            Type::Pointer { .. } => None,
        }
    }
}

fn field(f: &syn::Field) -> Option<Type> {
    let mut ty = &f.ty;
    while let syn::Type::Array(a) = ty {
        ty = &a.elem;
    }
    // A field of a type we cannot read (a callback) counts as a pointer.
    Some(
        Type::from_syn(ty)
            .filter(|t| t.name() != Some("Option"))
            .unwrap_or(Type::Pointer { mutable: false, to: Box::new(Type::Name("c_void".to_owned())) }),
    )
}

fn primitive(name: &str) -> Option<&'static str> {
    Some(match name {
        "c_char" | "i8" => "i8",
        "c_uchar" | "u8" => "u8",
        "c_short" | "i16" => "i16",
        "c_ushort" | "u16" => "u16",
        "c_int" | "i32" => "i32",
        "c_uint" | "u32" => "u32",
        "c_longlong" | "c_long" | "i64" => "i64",
        "c_ulonglong" | "c_ulong" | "u64" => "u64",
        "usize" => "usize",
        "f32" => "f32",
        "f64" => "f64",
        "c_void" => "c_void",
        _ => return None,
    })
}

/// The wire's kind of a handle type.
pub fn handle_kind(name: &str) -> Option<&'static str> {
    Some(match name {
        "CUcontext" => "Context",
        "CUmodule" => "Module",
        "CUlibrary" => "Library",
        "CUfunction" | "CUkernel" => "Function",
        "CUstream" => "Stream",
        "CUevent" => "Event",
        "CUarray" => "Array",
        "CUmipmappedArray" => "MipmappedArray",
        "CUgraph" => "Graph",
        "CUgraphNode" => "GraphNode",
        "CUgraphExec" => "GraphExec",
        "CUmemoryPool" => "MemPool",
        "CUmemGenericAllocationHandle" => "MemAllocation",
        "CUlinkState" => "LinkState",
        "CUgreenCtx" => "GreenContext",
        "CUuserObject" => "UserObject",
        "CUtexref" => "TexRef",
        "CUsurfref" => "SurfRef",
        "CUexternalMemory" => "ExternalMemory",
        "CUexternalSemaphore" => "ExternalSemaphore",
        "CUdevResourceDesc" => "DevResourceDesc",
        "CUasyncCallbackHandle" => "AsyncCallback",
        "CUlogsCallbackHandle" => "LogCallback",
        _ => return None,
    })
}
