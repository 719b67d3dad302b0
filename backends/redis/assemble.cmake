# Makes one script from the .lua files, as it is sent to the server:
# cmake -DFOLDER=… -DSCRIPT=… -DVARIANT=… -DOUTPUT=… -P assemble.cmake
# dofile('library.lua') becomes what library.lua returns, loadfile('fence.lua') a function with the text of fence.lua,
# and so does channel.lua. VARIANT many: the whole script becomes a function within many.lua.
# Comments and indentation are removed. No string of a script contains "--".
function(read_script out name)
  file(READ ${FOLDER}/${name}.lua text)
  string(REGEX REPLACE "[ \t]*--[^\n]*" "" text "${text}")
  string(REGEX REPLACE "\n[ \t\n]+" "\n" text "\n${text}")
  string(REGEX REPLACE "^\n" "" text "${text}")
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

read_script(text ${SCRIPT})
read_script(library library)
string(REPLACE "dofile('library.lua')" "(function()\n${library}end)()" text "${text}")
foreach(part fence channel)
  read_script(${part} ${part})
  string(REPLACE "loadfile('${part}.lua')" "function(...)\n${${part}}end" text "${text}")
endforeach()
if(VARIANT STREQUAL "many")
  read_script(many many)
  string(REPLACE "loadfile('script')" "function(KEYS, ARGV)\n${text}end" text "${many}")
endif()
file(WRITE ${OUTPUT} "${text}")
