package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
)

//go:embed assets/*
var assetFiles embed.FS

// An asset is a static file.
type asset struct {
	mediaType string
	tag       string // ETag, a hash of the content
	content   []byte
}

// assets maps paths to assets.
var assets = readAssets()

func readAssets() map[string]asset {
	all := map[string]asset{}
	for name, kind := range map[string]string{
		"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		content, err := assetFiles.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // the files are built in
		}
		sum := sha256.Sum256(content)
		all["/assets/"+name] = asset{kind, `"` + hex.EncodeToString(sum[:8]) + `"`, content}
	}
	return all
}
