//! No module of a crate comes to use itself by way of others, and no folder does.
//!
//! The graph is drawn from `use` lines and from paths in the code (`crate::a::b`, `super::b`, `child::b`), tests left
//! out. A circle cannot be read from its beginning, nor any part of it be understood or changed alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

type Module = Vec<String>;
type Graph = BTreeMap<Module, BTreeSet<Module>>;

#[test]
fn no_module_and_no_folder_is_in_a_circle() {
    let crates = crates(&orion_api::root());
    assert!(crates.len() > 10, "crates found: {crates:?}");
    let mut found = Vec::new();
    for folder in crates {
        let name = folder.strip_prefix(orion_api::root()).unwrap_or(&folder).display().to_string();
        let graph = draw(&folder.join("src"));
        found.extend(circles(&graph).into_iter().map(|circle| format!("{name}: {circle}")));
        for (of, folders) in folded(&graph) {
            let inside = if of.is_empty() { "folders".to_owned() } else { format!("folders of {}", of.join("::")) };
            found.extend(circles(&folders).into_iter().map(|circle| format!("{name}: {inside}: {circle}")));
        }
    }
    assert!(found.is_empty(), "modules that come to use themselves:\n{}", found.join("\n"));
}

#[test]
fn a_circle_is_found_by_its_names() {
    let graph = |edges: &[(&str, &str)]| {
        let path = |text: &str| text.split("::").map(str::to_owned).collect::<Module>();
        let mut graph = Graph::new();
        for (from, to) in edges {
            graph.entry(path(to)).or_default();
            graph.entry(path(from)).or_default().insert(path(to));
        }
        graph
    };
    let line = graph(&[("a", "b"), ("b", "c"), ("a", "c")]);
    assert_eq!(circles(&line), Vec::<String>::new());
    let ring = graph(&[("a", "b"), ("b", "c"), ("c", "b")]);
    assert_eq!(circles(&ring), ["b -> c; c -> b"]);
    // No two files use each other, and the folders do.
    let folders = graph(&[("x::a", "y::b"), ("y::c", "x::d")]);
    assert!(circles(&folders).is_empty());
    let at_the_top = &folded(&folders)[&Module::new()];
    assert_eq!(circles(at_the_top), ["x -> y; y -> x"]);
}

#[test]
fn what_a_file_uses_is_read_from_its_code() {
    let text = "
        use crate::{a::{self, B}, c as d};
        pub(crate) use super::e::F;
        /// Not `crate::g::H`.
        fn f() -> &'static str { super::i::j(); kid::k(); other::kid::m(); \"crate::l\" }
        #[cfg(test)]
        mod tests { use crate::n::O; }
        mod inline { use super::super::p; }
    ";
    let here = vec!["x".to_owned(), "y".to_owned()];
    let mut paths = BTreeSet::new();
    let kids = BTreeSet::from(["kid".to_owned()]);
    read(text.parse().expect("Rust"), &here, &kids, &mut paths);
    let read: Vec<String> = paths.iter().map(|path| path.join("::")).collect();
    assert_eq!(read, ["a", "a::B", "c", "x::e::F", "x::i::j", "x::p", "x::y::kid::k"]);
}

fn crates(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder of the repository").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if !path.is_dir() || name == "target" || name.to_string_lossy().starts_with('.') {
            continue;
        }
        if path.join("Cargo.toml").is_file() && path.join("src").is_dir() {
            found.push(path.clone());
        }
        found.extend(crates(&path));
    }
    found.sort();
    found
}

/// Each module that has a file, and the modules that it uses.
fn draw(src: &Path) -> Graph {
    let mut files = BTreeMap::new();
    collect(src, &mut Vec::new(), &mut files);
    let modules: BTreeSet<Module> = files.keys().cloned().collect();
    let uses = |here: &Module, text: &String| {
        let is_kid = |module: &&Module| module.len() == here.len() + 1 && module.starts_with(here);
        let kids = modules.iter().filter(is_kid).filter_map(|module| module.last().cloned()).collect();
        let mut paths = BTreeSet::new();
        let tokens = text.parse().unwrap_or_else(|e| panic!("{}: {e}", here.join("::")));
        read(tokens, here, &kids, &mut paths);
        let resolved = paths.iter().filter_map(|path| {
            (0..=path.len()).rev().map(|n| path[..n].to_vec()).find(|module| modules.contains(module))
        });
        resolved.filter(|module| module != here).collect()
    };
    files.iter().map(|(here, text)| (here.clone(), uses(here, text))).collect()
}

fn collect(folder: &Path, at: &mut Module, files: &mut BTreeMap<Module, String>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources").flatten() {
        let path = entry.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            at.push(stem);
            collect(&path, at, files);
            at.pop();
        } else if path.extension().is_some_and(|e| e == "rs") {
            let mut module = at.clone();
            if !matches!(stem.as_str(), "mod" | "lib" | "main") {
                module.push(stem);
            }
            // Tests in files of their own.
            if module.last().is_none_or(|name| name != "tests") {
                files.entry(module).or_default().push_str(&std::fs::read_to_string(&path).expect("a source"));
            }
        }
    }
}

/// Paths into the crate that code names, from the crate's root.
fn read(tokens: TokenStream, here: &Module, kids: &BTreeSet<String>, paths: &mut BTreeSet<Module>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut i = 0;
    while i < tokens.len() {
        match &tokens[i] {
            TokenTree::Punct(p) if p.as_char() == '#' && is_test(tokens.get(i + 1)) => {
                i = behind_item(&tokens, i + 2);
                continue;
            }
            TokenTree::Ident(word) if word == "use" => {
                let end = (i..tokens.len()).find(|at| is_punct(&tokens[*at], ';')).unwrap_or(tokens.len());
                tree(&tokens[i + 1..end], &Module::new(), &mut |path| paths.extend(from_root(path, here, kids)));
                i = end;
            }
            TokenTree::Ident(word) if word == "mod" => {
                if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) =
                    (tokens.get(i + 1), tokens.get(i + 2))
                {
                    let inside = [here.as_slice(), &[name.to_string()]].concat();
                    read(body.stream(), &inside, &BTreeSet::new(), paths);
                    i += 2;
                }
            }
            TokenTree::Ident(_) if i == 0 || !is_punct(&tokens[i - 1], ':') => {
                let (path, end) = path_at(&tokens, i);
                if path.len() > 1 {
                    paths.extend(from_root(&path, here, kids));
                }
                i = end - 1;
            }
            TokenTree::Group(group) => read(group.stream(), here, kids, paths),
            _ => {}
        }
        i += 1;
    }
}

fn is_punct(token: &TokenTree, c: char) -> bool {
    matches!(token, TokenTree::Punct(p) if p.as_char() == c)
}

/// Whether it is the bracket of `#[cfg(test)]`.
fn is_test(token: Option<&TokenTree>) -> bool {
    let text = match token {
        Some(TokenTree::Group(group)) => group.stream().to_string().replace(' ', ""),
        _ => return false,
    };
    text.starts_with("cfg(test)") || text.starts_with("cfg(all(test,")
}

/// The place behind the item that begins there.
fn behind_item(tokens: &[TokenTree], from: usize) -> usize {
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        other => is_punct(other, ';'),
    };
    (from..tokens.len()).find(|at| ends(&tokens[*at])).map_or(tokens.len(), |at| at + 1)
}

/// The path that begins there, and the place behind it.
fn path_at(tokens: &[TokenTree], from: usize) -> (Module, usize) {
    let (mut path, mut at) = (Vec::new(), from);
    while let Some(TokenTree::Ident(word)) = tokens.get(at) {
        path.push(word.to_string());
        at += 1;
        let goes_on = |at: usize| tokens.get(at).is_some_and(|t| is_punct(t, ':'));
        if !goes_on(at) || !goes_on(at + 1) || !matches!(tokens.get(at + 2), Some(TokenTree::Ident(_))) {
            break;
        }
        at += 2;
    }
    (path, at)
}

/// Each path of a `use` tree.
fn tree(tokens: &[TokenTree], before: &Module, found: &mut impl FnMut(&Module)) {
    for part in tokens.split(|token| is_punct(token, ',')) {
        let (mut path, mut is_open) = (before.clone(), true);
        for token in part {
            match token {
                TokenTree::Ident(word) if word == "as" => break,
                TokenTree::Ident(word) if word != "self" || path.is_empty() => path.push(word.to_string()),
                TokenTree::Group(group) => {
                    tree(&group.stream().into_iter().collect::<Vec<_>>(), &path, found);
                    is_open = false;
                }
                _ => {}
            }
        }
        if is_open && !path.is_empty() {
            found(&path);
        }
    }
}

/// The same path from the crate's root, if it leads into the crate.
fn from_root(path: &Module, here: &Module, kids: &BTreeSet<String>) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    let (mut base, mut rest) = match first.as_str() {
        "crate" => (Module::new(), rest),
        "self" => (here.clone(), rest),
        "super" => (here[..here.len().saturating_sub(1)].to_vec(), rest),
        kid if kids.contains(kid) => (here.clone(), path.as_slice()),
        _ => return None,
    };
    while let Some((next, behind)) = rest.split_first().filter(|(next, _)| *next == "super") {
        debug_assert_eq!(next, "super");
        base.pop();
        rest = behind;
    }
    base.extend_from_slice(rest);
    Some(base)
}

/// For each folder, what lies directly in it as nodes.
fn folded(graph: &Graph) -> BTreeMap<Module, Graph> {
    let mut all: BTreeMap<Module, Graph> = BTreeMap::new();
    for (from, uses) in graph {
        for to in uses {
            let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
            // A folder's own file and what lies in the folder are no two neighbours.
            if let (Some(a), Some(b)) = (from.get(shared), to.get(shared)) {
                let folder = all.entry(from[..shared].to_vec()).or_default();
                folder.entry(vec![b.clone()]).or_default();
                folder.entry(vec![a.clone()]).or_default().insert(vec![b.clone()]);
            }
        }
    }
    all
}

/// Each set of nodes that reach each other, by the edges between them.
fn circles(graph: &Graph) -> Vec<String> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> = graph.keys().map(|from| (from, reach(graph, from))).collect();
    let mut told: BTreeSet<&Module> = BTreeSet::new();
    let mut found = Vec::new();
    for from in graph.keys() {
        let circle: BTreeSet<&Module> =
            reached[from].iter().copied().filter(|to| reached.get(to).is_some_and(|r| r.contains(from))).collect();
        if circle.is_empty() || !told.insert(from) {
            continue;
        }
        told.extend(&circle);
        let name = |module: &Module| if module.is_empty() { "the root".to_owned() } else { module.join("::") };
        let edges = circle.iter().map(|a| {
            let to: Vec<String> = graph[*a].iter().filter(|b| circle.contains(b)).map(name).collect();
            format!("{} -> {}", name(a), to.join(", "))
        });
        found.push(edges.collect::<Vec<_>>().join("; "));
    }
    found
}

fn reach<'a>(graph: &'a Graph, from: &Module) -> BTreeSet<&'a Module> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&Module> = graph[from].iter().collect();
    while let Some(module) = next.pop() {
        if seen.insert(module) {
            next.extend(graph.get(module).into_iter().flatten());
        }
    }
    seen
}
