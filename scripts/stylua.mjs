// Format the Lua files with StyLua's library, or with --check only report which ones differ. The library does not read
// stylua.toml, so this script does: the same file serves editors that run StyLua's command.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const require = createRequire(join(root, 'tests', 'peers', 'package.json'))

function loadStylua() {
  try {
    return require('@johnnymorganz/stylua')
  } catch {
    console.error('StyLua is not installed: run `npm install` in tests/peers.')
    process.exit(1)
  }
}

const stylua = loadStylua()
const enums = {
  call_parentheses: stylua.CallParenType,
  indent_type: stylua.IndentType,
  quote_style: stylua.QuoteStyle,
  syntax: stylua.LuaVersion,
}

function readConfig() {
  const config = stylua.Config.new()
  for (const line of readFileSync(join(root, 'stylua.toml'), 'utf8').split('\n').filter(Boolean)) {
    const [key, value] = line.split(' = ')
    config[key] = key in enums ? enums[key][JSON.parse(value)] : JSON.parse(value)
  }
  return config
}

const isCheck = process.argv.includes('--check')
for (const directory of ['lua', 'plugin']) {
  for (const name of readdirSync(join(root, directory), { recursive: true }).filter((name) => name.endsWith('.lua'))) {
    const path = join(directory, name)
    const code = readFileSync(join(root, path), 'utf8')
    let formatted
    try {
      formatted = stylua.formatCode(code, readConfig(), undefined, stylua.OutputVerification.Full)
    } catch (error) {
      console.error(`${path}: ${error}`)
      process.exitCode = 1
      continue
    }
    if (formatted === code) continue
    if (isCheck) {
      console.error(`${path} is not formatted: make format`)
      process.exitCode = 1
    } else {
      writeFileSync(join(root, path), formatted)
      console.log(`formatted ${path}`)
    }
  }
}
