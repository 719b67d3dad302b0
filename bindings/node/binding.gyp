# How npm builds the addon, over the library that pkg-config finds.
{
  "targets": [
    {
      "target_name": "dlock",
      "sources": ["src/addon.c", "src/lock.c", "src/work.c"],
      "cflags": ["-std=gnu11", "-fvisibility=hidden", "<!@(pkg-config --cflags dlock)"],
      "libraries": ["<!@(pkg-config --libs dlock)", "-Wl,-rpath,<!(pkg-config --variable=libdir dlock)"]
    }
  ]
}
